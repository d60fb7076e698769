"""All decoders. A new one is a row in one of the tables."""

from tests.unit.enemy.batches import BATCHES
from tests.unit.enemy.messages import MESSAGES
from tests.unit.enemy.outside import OUTSIDE
from tests.unit.enemy.stored import STORED
from tests.unit.enemy.texts import TEXTS
from tests.unit.enemy.types_and_keys import TYPES_AND_KEYS

DECODERS = (*STORED, *TYPES_AND_KEYS, *MESSAGES, *BATCHES, *OUTSIDE, *TEXTS)
