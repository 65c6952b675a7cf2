"""What can be wrong with a passport. Retrying doesn't fix any of it.

PassportError
├── ValidationError         VALIDATION_ERROR: a document, an order or a value is invalid
├── SnapshotNotReady        SNAPSHOT_NOT_READY: the snapshot is not sealed
├── RulesNotPublished       RULE_PKG_NOT_PUBLISHED
├── RuleTypeError           RULE_TYPE_ERROR: an expression mixes types
├── DocumentTooLarge        PAYLOAD_TOO_LARGE
├── SigningKeyMissing       SIGNING_KEY_MISSING
└── QrEncodeFailed          QR_ENCODE_FAILED
"""

from __future__ import annotations

from holdfast import Permanent


class PassportError(Permanent):
    pass


class ValidationError(PassportError):
    default_code = "VALIDATION_ERROR"


class SnapshotNotReady(PassportError):
    default_code = "SNAPSHOT_NOT_READY"


class RulesNotPublished(PassportError):
    default_code = "RULE_PKG_NOT_PUBLISHED"


class RuleTypeError(PassportError):
    default_code = "RULE_TYPE_ERROR"


class DocumentTooLarge(PassportError):
    default_code = "PAYLOAD_TOO_LARGE"


class SigningKeyMissing(PassportError):
    default_code = "SIGNING_KEY_MISSING"


class QrEncodeFailed(PassportError):
    default_code = "QR_ENCODE_FAILED"


PERMANENT_CODES = tuple(kind.default_code for kind in PassportError.__subclasses__())
