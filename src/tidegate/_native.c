/* What Tidegate does to every single record of Kafka's record batches, compiled: taking batches apart into columns,
 * making batches of columns, and finding the partitions of keys.
 *
 * Nothing here decides anything or keeps anything between two calls, and nobody is called back, but for objects whose
 * bytes come from a `__buffer__` of their own. Whatever it reads may be hostile: no byte is touched before it is known to
 * lie within what was given, and what does not add up is a ValueError.
 * All of it exists in Python, too (`tidegate.connectors.kafka.batches`, `tidegate.state.key_partitions`), where this
 * module could not be built, and tests hold the two together. What these functions take and give is in `native.py`.
 *
 * Sources: Kafka's record format (KIP-98; `DefaultRecord`, `DefaultRecordBatch`), and its `Utils.murmur2`.
 */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS = 1, TIMESTAMPS = 2, HEADERS = 4, OFFSETS = 8, APPENDED = 16 };

/* A record's length, attributes, timestamp, offset, lengths of key and value, and number of headers, a byte each. */
#define SMALLEST_RECORD 7
#define LARGEST_VARINT 10
#define FIRST_CAPACITY 4096

/* ---- reading ---------------------------------------------------------------------------------------------------- */

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} Cursor;

static int malformed(const char *what)
{
    PyErr_SetString(PyExc_ValueError, what);
    return -1;
}

/* Protocol Buffers' zigzag varint, as Kafka has it. */
static inline int read_number(Cursor *cursor, int64_t *found)
{
    uint64_t value = 0;
    int shift = 0;
    for (;;) {
        if (cursor->at >= cursor->end)
            return malformed("a number goes on behind the end");
        uint8_t byte = *cursor->at++;
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (!(byte & 0x80))
            break;
        shift += 7;
        if (shift >= 7 * LARGEST_VARINT)
            return malformed("a number has more bytes than any may have");
    }
    *found = (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
    return 0;
}

/* The next so many bytes; a negative number of them is none at all, and `*found` NULL. */
static inline int read_span(Cursor *cursor, const uint8_t **found, Py_ssize_t *size)
{
    int64_t length;
    if (read_number(cursor, &length) < 0)
        return -1;
    if (length < 0) {
        *found = NULL;
        *size = 0;
        return 0;
    }
    if (length > cursor->end - cursor->at)
        return malformed("a field goes on behind the end of its record");
    *found = cursor->at;
    *size = (Py_ssize_t)length;
    cursor->at += length;
    return 0;
}

static inline PyObject *bytes_or_none(const uint8_t *found, Py_ssize_t size)
{
    if (found == NULL)
        return Py_NewRef(Py_None);
    return PyBytes_FromStringAndSize((const char *)found, size);
}

static PyObject *read_header(Cursor *cursor)
{
    const uint8_t *name, *value;
    Py_ssize_t name_size, value_size;
    if (read_span(cursor, &name, &name_size) < 0 || read_span(cursor, &value, &value_size) < 0)
        return NULL;
    if (name == NULL) {
        malformed("a header has no name");
        return NULL;
    }
    PyObject *text = PyUnicode_DecodeUTF8((const char *)name, name_size, "backslashreplace");
    PyObject *bytes = text == NULL ? NULL : bytes_or_none(value, value_size);
    PyObject *pair = bytes == NULL ? NULL : PyTuple_Pack(2, text, bytes);
    Py_XDECREF(text);
    Py_XDECREF(bytes);
    return pair;
}

/* A list of pairs of a name and bytes or None. NULL with an error. */
static PyObject *read_headers(Cursor *cursor)
{
    int64_t count;
    if (read_number(cursor, &count) < 0)
        return NULL;
    /* A header takes two bytes at least. */
    if (count < 0 || count > (cursor->end - cursor->at) / 2) {
        malformed("a record has more headers than bytes");
        return NULL;
    }
    PyObject *headers = PyList_New(0);
    for (int64_t index = 0; headers != NULL && index < count; index++) {
        PyObject *pair = read_header(cursor);
        if (pair == NULL || PyList_Append(headers, pair) < 0)
            Py_CLEAR(headers);
        Py_XDECREF(pair);
    }
    return headers;
}

static int skip_headers(Cursor *cursor)
{
    int64_t count;
    if (read_number(cursor, &count) < 0)
        return -1;
    if (count == 0)
        return 0;
    if (count < 0 || count > (cursor->end - cursor->at) / 2)
        return malformed("a record has more headers than bytes");
    for (int64_t index = 0; index < count; index++) {
        const uint8_t *found;
        Py_ssize_t size;
        if (read_span(cursor, &found, &size) < 0)
            return -1;
        if (found == NULL)
            return malformed("a header has no name");
        if (read_span(cursor, &found, &size) < 0)
            return -1;
    }
    return 0;
}

typedef struct {
    PyObject *values;
    PyObject *keys;
    PyObject *timestamps;
    PyObject *headers;
    PyObject *offsets;
} Columns;

/* Takes the reference to `item`, which may be NULL with an error set. */
static inline int put(PyObject *column, Py_ssize_t index, PyObject *item)
{
    return item == NULL ? -1 : PyList_SetItem(column, index, item);
}

static int read_record(Cursor *batch, const Columns *to, Py_ssize_t index, int64_t first_offset, int64_t first_timestamp,
                       PyObject *appended)
{
    const uint8_t *found;
    Py_ssize_t size;
    if (read_span(batch, &found, &size) < 0)
        return -1;
    if (size < 1)
        return malformed("a record of no bytes");
    /* One byte of attributes, of which there are none. */
    Cursor cursor = {found + 1, found + size};
    int64_t passed, place;
    if (read_number(&cursor, &passed) < 0 || read_number(&cursor, &place) < 0)
        return -1;
    if (to->timestamps != NULL) {
        int64_t time = (int64_t)((uint64_t)first_timestamp + (uint64_t)passed);
        PyObject *item = appended == NULL ? PyLong_FromLongLong(time) : Py_NewRef(appended);
        if (put(to->timestamps, index, item) < 0)
            return -1;
    }
    if (to->offsets != NULL) {
        int64_t offset = (int64_t)((uint64_t)first_offset + (uint64_t)place);
        if (put(to->offsets, index, PyLong_FromLongLong(offset)) < 0)
            return -1;
    }
    if (read_span(&cursor, &found, &size) < 0)
        return -1;
    if (to->keys != NULL && put(to->keys, index, bytes_or_none(found, size)) < 0)
        return -1;
    if (read_span(&cursor, &found, &size) < 0)
        return -1;
    if (put(to->values, index, bytes_or_none(found, size)) < 0)
        return -1;
    if (to->headers == NULL) {
        if (skip_headers(&cursor) < 0)
            return -1;
    } else if (put(to->headers, index, read_headers(&cursor)) < 0) {
        return -1;
    }
    if (cursor.at != cursor.end)
        return malformed("a record is longer than what is in it");
    return 0;
}

static void drop(Columns *columns)
{
    Py_CLEAR(columns->values);
    Py_CLEAR(columns->keys);
    Py_CLEAR(columns->timestamps);
    Py_CLEAR(columns->headers);
    Py_CLEAR(columns->offsets);
}

static int make(Columns *columns, Py_ssize_t count, int wanted)
{
    columns->values = PyList_New(count);
    columns->keys = wanted & KEYS ? PyList_New(count) : NULL;
    columns->timestamps = wanted & TIMESTAMPS ? PyList_New(count) : NULL;
    columns->headers = wanted & HEADERS ? PyList_New(count) : NULL;
    columns->offsets = wanted & OFFSETS ? PyList_New(count) : NULL;
    return PyErr_Occurred() == NULL ? 0 : -1;
}

static PyObject *packed(const Columns *columns)
{
#define OR_NONE(column) ((column) == NULL ? Py_None : (column))
    return PyTuple_Pack(5, columns->values, OR_NONE(columns->keys), OR_NONE(columns->timestamps),
                        OR_NONE(columns->headers), OR_NONE(columns->offsets));
#undef OR_NONE
}

static PyObject *read_all(Cursor *cursor, Py_ssize_t count, int wanted, int64_t first_offset, int64_t first_timestamp,
                          int64_t append_time)
{
    /* Before any list is made: the number is what somebody has written. */
    if (count < 0 || count > (cursor->end - cursor->at) / SMALLEST_RECORD) {
        malformed("there are fewer bytes than so many records have");
        return NULL;
    }
    Columns columns = {NULL, NULL, NULL, NULL, NULL};
    PyObject *appended = wanted & APPENDED ? PyLong_FromLongLong(append_time) : NULL;
    PyObject *result = NULL;
    if ((wanted & APPENDED && appended == NULL) || make(&columns, count, wanted) < 0)
        goto end;
    for (Py_ssize_t index = 0; index < count; index++)
        if (read_record(cursor, &columns, index, first_offset, first_timestamp, appended) < 0)
            goto end;
    if (cursor->at != cursor->end) {
        malformed("there are bytes behind the last record");
        goto end;
    }
    result = packed(&columns);
end:
    drop(&columns);
    Py_XDECREF(appended);
    return result;
}

static PyObject *read_records(PyObject *module, PyObject *args)
{
    Py_buffer data;
    Py_ssize_t start, end, count;
    long long first_offset, first_timestamp, append_time;
    int wanted;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*nnniLLL", &data, &start, &end, &count, &wanted, &first_offset, &first_timestamp,
                          &append_time))
        return NULL;
    PyObject *result = NULL;
    if (start < 0 || end < start || end > data.len) {
        malformed("no such part of these bytes");
    } else {
        Cursor cursor = {(const uint8_t *)data.buf + start, (const uint8_t *)data.buf + end};
        result = read_all(&cursor, count, wanted, first_offset, first_timestamp, append_time);
    }
    PyBuffer_Release(&data);
    return result;
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

static inline uint64_t zigzag(int64_t number)
{
    return ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
}

static inline int size_of_number(int64_t number)
{
    uint64_t value = zigzag(number);
    int size = 1;
    while (value >= 0x80) {
        value >>= 7;
        size++;
    }
    return size;
}

static inline uint8_t *write_number(uint8_t *at, int64_t number)
{
    uint64_t value = zigzag(number);
    while (value >= 0x80) {
        *at++ = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *at++ = (uint8_t)value;
    return at;
}

/* A key or value: bytes, another object that has bytes (whose view is held meanwhile), or None. The object is held, too:
 * from Python 3.12 on a class may have a `__buffer__` that does anything, so that nothing which was only borrowed may be
 * believed to be there behind it. */
typedef struct {
    const char *data;
    Py_ssize_t size;
    PyObject *object;
    Py_buffer view;
    int is_held;
} Field;

static inline void close_field(Field *field)
{
    if (field->is_held)
        PyBuffer_Release(&field->view);
    field->is_held = 0;
    Py_CLEAR(field->object);
}

static int open_field(Field *field, PyObject *object)
{
    field->is_held = 0;
    field->object = NULL;
    field->data = NULL;
    field->size = -1;
    if (object == NULL)
        return -1;
    if (object == Py_None)
        return 0;
    field->object = Py_NewRef(object);
    if (PyBytes_Check(object)) {
        field->data = PyBytes_AsString(object);
        field->size = PyBytes_Size(object);
        return 0;
    }
    if (PyObject_GetBuffer(object, &field->view, PyBUF_SIMPLE) < 0) {
        close_field(field);
        return -1;
    }
    field->is_held = 1;
    field->data = field->view.buf;
    field->size = field->view.len;
    return 0;
}

/* Of bytes with their length before them; -1 for none. */
static inline Py_ssize_t size_of_span(Py_ssize_t size)
{
    return size_of_number(size) + (size > 0 ? size : 0);
}

static inline uint8_t *write_span(uint8_t *at, const char *data, Py_ssize_t size)
{
    at = write_number(at, size);
    if (size > 0) {
        memcpy(at, data, (size_t)size);
        at += size;
    }
    return at;
}

/* A column: a list or a tuple, so that nothing of a caller's runs when one looks at it. */
typedef struct {
    PyObject *sequence;
    int is_list;
    Py_ssize_t size;
} Column;

static int open_column(Column *column, PyObject *object, const char *name)
{
    column->sequence = NULL;
    column->size = 0;
    column->is_list = 0;
    if (object == Py_None)
        return 0;
    column->is_list = PyList_Check(object);
    if (!column->is_list && !PyTuple_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%s must be a list or a tuple", name);
        return -1;
    }
    column->sequence = object;
    column->size = column->is_list ? PyList_Size(object) : PyTuple_Size(object);
    return 0;
}

/* Borrowed; NULL with an error behind the end. */
static inline PyObject *item_of(const Column *column, Py_ssize_t index)
{
    return column->is_list ? PyList_GetItem(column->sequence, index) : PyTuple_GetItem(column->sequence, index);
}

/* What is written, and how much of its bytes is used. */
typedef struct {
    PyObject *bytes;
    Py_ssize_t used;
    Py_ssize_t capacity;
} Output;

static int reserve(Output *output, Py_ssize_t more)
{
    if (PyByteArray_Size(output->bytes) != output->capacity) {
        /* A `__buffer__` of somebody's had it in hand. */
        PyErr_SetString(PyExc_BufferError, "the batch was changed while it was written");
        return -1;
    }
    if (more <= output->capacity - output->used)
        return 0;
    if (more > PY_SSIZE_T_MAX / 2 - output->capacity) {
        PyErr_NoMemory();
        return -1;
    }
    Py_ssize_t capacity = 2 * output->capacity + more + FIRST_CAPACITY;
    if (PyByteArray_Resize(output->bytes, capacity) < 0)
        return -1;
    output->capacity = capacity;
    return 0;
}

static inline uint8_t *place_of(const Output *output)
{
    return (uint8_t *)PyByteArray_AsString(output->bytes) + output->used;
}

/* Borrowed, and nothing of anybody's runs while it is: a header's value is bytes or None, never another object. */
typedef struct {
    const char *name, *value;
    Py_ssize_t name_size, value_size;
} Header;

static int open_header(Header *header, const Column *headers, Py_ssize_t index)
{
    Column pair;
    PyObject *object = item_of(headers, index), *name = NULL, *value = NULL;
    if (object != NULL && object != Py_None && open_column(&pair, object, "a header") == 0 && pair.size == 2) {
        name = item_of(&pair, 0);
        value = item_of(&pair, 1);
    }
    if (name == NULL || !PyUnicode_Check(name) || (value != Py_None && !PyBytes_Check(value))) {
        PyErr_SetString(PyExc_TypeError, "a header must be a pair of a name and bytes or None");
        return -1;
    }
    header->value = value == Py_None ? NULL : PyBytes_AsString(value);
    header->value_size = value == Py_None ? -1 : PyBytes_Size(value);
    header->name = PyUnicode_AsUTF8AndSize(name, &header->name_size);
    return header->name == NULL ? -1 : 0;
}

/* How many bytes the headers of a record take, with their number; -1 with an error. */
static Py_ssize_t size_of_headers(PyObject *object, Column *headers)
{
    if (open_column(headers, object, "headers of a record") < 0)
        return -1;
    Py_ssize_t size = size_of_number(headers->size);
    for (Py_ssize_t index = 0; index < headers->size; index++) {
        Header header;
        if (open_header(&header, headers, index) < 0)
            return -1;
        size += size_of_span(header.name_size) + size_of_span(header.value_size);
    }
    return size;
}

/* As measured just before, with nothing of anybody's run in between. NULL with an error. */
static uint8_t *write_headers(uint8_t *at, const Column *headers)
{
    at = write_number(at, headers->size);
    for (Py_ssize_t index = 0; index < headers->size; index++) {
        Header header;
        if (open_header(&header, headers, index) < 0)
            return NULL;
        at = write_span(at, header.name, header.name_size);
        at = write_span(at, header.value, header.value_size);
    }
    return at;
}

/* 1 when it was added, 0 when there is no room, -1 with an error. */
static int write_record(Output *output, int64_t number, int64_t passed, const Field *key, const Field *value,
                        PyObject *headers, Py_ssize_t limit, int must)
{
    Column own;
    Py_ssize_t around = size_of_headers(headers, &own);
    if (around < 0)
        return -1;
    Py_ssize_t body = 1 + size_of_number(passed) + size_of_number(number) + around;
    body += size_of_span(key->size) + size_of_span(value->size);
    Py_ssize_t size = body + size_of_number(body);
    if (!must && (limit < output->used || size > limit - output->used))
        return 0;
    if (reserve(output, size) < 0)
        return -1;
    uint8_t *begin = place_of(output), *at = write_number(begin, body);
    *at++ = 0; /* attributes */
    at = write_number(at, passed);
    at = write_number(at, number);
    at = write_span(at, key->data, key->size);
    at = write_span(at, value->data, value->size);
    at = write_headers(at, &own);
    if (at == NULL)
        return -1;
    output->used += at - begin;
    return 1;
}

static int read_time(PyObject *object, int64_t *time)
{
    if (object == NULL)
        return -1;
    if (!PyLong_Check(object)) {
        PyErr_SetString(PyExc_TypeError, "a timestamp must be an int");
        return -1;
    }
    *time = PyLong_AsLongLong(object);
    return *time == -1 && PyErr_Occurred() ? -1 : 0;
}

typedef struct {
    Column values, keys, timestamps, headers;
} Given;

static int open_given(Given *given, PyObject *values, PyObject *keys, PyObject *timestamps, PyObject *headers)
{
    if (open_column(&given->values, values, "values") < 0 || open_column(&given->keys, keys, "keys") < 0 ||
        open_column(&given->timestamps, timestamps, "timestamps") < 0 ||
        open_column(&given->headers, headers, "headers") < 0)
        return -1;
    Py_ssize_t size = given->values.size;
    if (given->values.sequence == NULL || given->timestamps.sequence == NULL || given->timestamps.size != size ||
        (given->keys.sequence != NULL && given->keys.size != size) ||
        (given->headers.sequence != NULL && given->headers.size != size))
        return malformed("columns of different lengths");
    return 0;
}

/* As `write_record`, of the given ones that at `index`; `*first` and `*latest` are times. */
static int write_given(Output *output, const Given *given, Py_ssize_t index, int64_t number, int64_t *first,
                       int64_t *latest, Py_ssize_t limit)
{
    int64_t time;
    if (read_time(item_of(&given->timestamps, index), &time) < 0)
        return -1;
    Field key, value;
    if (open_field(&key, given->keys.sequence == NULL ? Py_None : item_of(&given->keys, index)) < 0)
        return -1;
    if (open_field(&value, item_of(&given->values, index)) < 0) {
        close_field(&key);
        return -1;
    }
    PyObject *headers = given->headers.sequence == NULL ? Py_None : item_of(&given->headers, index);
    int added = -1;
    if (headers != NULL) {
        int64_t passed = number == 0 ? 0 : (int64_t)((uint64_t)time - (uint64_t)*first);
        added = write_record(output, number, passed, &key, &value, headers, limit, number == 0);
    }
    close_field(&value);
    close_field(&key);
    if (added == 1) {
        if (number == 0)
            *first = *latest = time;
        else if (time > *latest)
            *latest = time;
    }
    return added;
}

static PyObject *append_records(PyObject *module, PyObject *args)
{
    PyObject *batch, *values, *keys, *timestamps, *headers;
    Py_ssize_t begin, limit;
    long long number, first_time, latest_time;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!OOOOnLLLn", &PyByteArray_Type, &batch, &values, &keys, &timestamps, &headers, &begin,
                          &number, &first_time, &latest_time, &limit))
        return NULL;
    Given given;
    if (open_given(&given, values, keys, timestamps, headers) < 0)
        return NULL;
    if (begin < 0 || number < 0 || number > INT32_MAX) {
        malformed("no such place");
        return NULL;
    }
    Py_ssize_t before = PyByteArray_Size(batch);
    Output output = {batch, before, before};
    int64_t first = first_time, latest = latest_time;
    int added = 1;
    Py_ssize_t index = begin;
    while (index < given.values.size && number + (index - begin) <= INT32_MAX) {
        added = write_given(&output, &given, index, number + (index - begin), &first, &latest, limit);
        if (added != 1)
            break;
        index++;
    }
    if (added < 0) {
        if (index == begin) {
            PyByteArray_Resize(batch, before);
            return NULL;
        }
        /* What was before it is added. Whoever goes on there meets it again, as the first one. */
        PyErr_Clear();
    }
    if (PyByteArray_Resize(batch, output.used) < 0)
        return NULL;
    return Py_BuildValue("nLL", index, (long long)first, (long long)latest);
}

/* ---- partitions ------------------------------------------------------------------------------------------------- */

/* Kafka's `toPositive(murmur2(key))`. */
static uint32_t murmur2(const uint8_t *key, Py_ssize_t size)
{
    const uint32_t multiplier = 0x5BD1E995;
    uint32_t state = 0x9747B28C ^ (uint32_t)size;
    Py_ssize_t words = size / 4;
    for (Py_ssize_t index = 0; index < words; index++, key += 4) {
        uint32_t mixed = key[0] | (uint32_t)key[1] << 8 | (uint32_t)key[2] << 16 | (uint32_t)key[3] << 24;
        mixed *= multiplier;
        mixed ^= mixed >> 24;
        mixed *= multiplier;
        state = state * multiplier ^ mixed;
    }
    switch (size % 4) {
    case 3:
        state ^= (uint32_t)key[2] << 16; /* fall through */
    case 2:
        state ^= (uint32_t)key[1] << 8; /* fall through */
    case 1:
        state ^= key[0];
        state *= multiplier;
    }
    state ^= state >> 13;
    state *= multiplier;
    state ^= state >> 15;
    return state & 0x7FFFFFFF;
}

static PyObject *partitions_of(PyObject *module, PyObject *args)
{
    PyObject *keys;
    Py_ssize_t count;
    Column column;
    (void)module;
    if (!PyArg_ParseTuple(args, "On", &keys, &count) || open_column(&column, keys, "keys") < 0)
        return NULL;
    if (count < 1 || count > INT32_MAX || column.sequence == NULL) {
        malformed("there is no partition");
        return NULL;
    }
    PyObject *found = PyList_New(column.size);
    for (Py_ssize_t index = 0; found != NULL && index < column.size; index++) {
        PyObject *key = item_of(&column, index);
        long partition = -1;
        if (key == NULL) {
            Py_CLEAR(found);
            break;
        }
        if (PyBytes_Check(key)) {
            partition = (long)(murmur2((const uint8_t *)PyBytes_AsString(key), PyBytes_Size(key)) % (uint32_t)count);
        } else if (key != Py_None) {
            PyErr_SetString(PyExc_TypeError, "a key must be bytes or None");
            Py_CLEAR(found);
            break;
        }
        if (put(found, index, PyLong_FromLong(partition)) < 0)
            Py_CLEAR(found);
    }
    return found;
}

static PyObject *first_elsewhere(PyObject *module, PyObject *args)
{
    PyObject *keys;
    Py_ssize_t partition, count;
    Column column;
    (void)module;
    if (!PyArg_ParseTuple(args, "Onn", &keys, &partition, &count) || open_column(&column, keys, "keys") < 0)
        return NULL;
    if (count < 1 || count > INT32_MAX || column.sequence == NULL) {
        malformed("there is no partition");
        return NULL;
    }
    for (Py_ssize_t index = 0; index < column.size; index++) {
        PyObject *key = item_of(&column, index);
        const char *data = NULL;
        Py_ssize_t size = 0;
        if (key == NULL)
            return NULL;
        if (PyUnicode_CheckExact(key)) {
            data = PyUnicode_AsUTF8AndSize(key, &size);
            /* Half of a pair of surrogates: others look closer. */
            if (data == NULL)
                PyErr_Clear();
        } else if (PyBytes_CheckExact(key)) {
            data = PyBytes_AsString(key);
            size = PyBytes_Size(key);
        }
        if (data == NULL || (Py_ssize_t)(murmur2((const uint8_t *)data, size) % (uint32_t)count) != partition)
            return PyLong_FromSsize_t(index);
    }
    return PyLong_FromLong(-1);
}

/* ---- module ----------------------------------------------------------------------------------------------------- */

static PyMethodDef functions[] = {
    {"read_records", read_records, METH_VARARGS, NULL},
    {"append_records", append_records, METH_VARARGS, NULL},
    {"partitions_of", partitions_of, METH_VARARGS, NULL},
    {"first_elsewhere", first_elsewhere, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static int fill(PyObject *module)
{
    if (PyModule_AddIntConstant(module, "KEYS", KEYS) < 0 ||
        PyModule_AddIntConstant(module, "TIMESTAMPS", TIMESTAMPS) < 0 ||
        PyModule_AddIntConstant(module, "HEADERS", HEADERS) < 0 || PyModule_AddIntConstant(module, "OFFSETS", OFFSETS) < 0 ||
        PyModule_AddIntConstant(module, "APPENDED", APPENDED) < 0)
        return -1;
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "tidegate._native", NULL, 0, functions, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void)
{
    /* So that one can see whether it is to blame for something, or what it is worth. */
    const char *wanted = getenv("TIDEGATE_NATIVE");
    if (wanted != NULL && strcmp(wanted, "0") == 0) {
        PyErr_SetString(PyExc_ImportError, "TIDEGATE_NATIVE=0");
        return NULL;
    }
    return PyModuleDef_Init(&definition);
}
