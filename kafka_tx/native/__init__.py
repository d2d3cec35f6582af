"""The native reader: exact ranges to Arrow through confluent-kafka's own librdkafka.

Optional: built where there was a C compiler, used where ``refusal`` is None.
"""

from kafka_tx.native.library import Status, refusal, status, supports
from kafka_tx.native.reader import NativeRangeReader, chosen

__all__ = ["NativeRangeReader", "Status", "chosen", "refusal", "status", "supports"]
