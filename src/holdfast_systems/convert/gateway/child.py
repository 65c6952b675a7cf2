"""The process that converts one PDF: PDF on stdin, XML on stdout, an exit code."""

from __future__ import annotations

import logging
import resource
import sys
from contextlib import suppress

from holdfast_systems.convert.limits import CONVERSION_MEMORY_BYTES_MAX, CONVERSION_SECONDS_MAX

NOT_A_PDF = 3
NOT_CONVERTED = 4


def main(mapping: str) -> int:
    limit_resources()
    logging.disable()  # The parent would take the library's messages for a refusal.
    # Imported after the limits are set: what follows reads an untrusted file.
    from holdfast_systems.convert.gateway.mappings import write_xml
    from holdfast_systems.convert.gateway.pages import NoPdf, NotConverted
    from holdfast_systems.convert.gateway.reader import read_document

    try:
        xml = write_xml(mapping, read_document(sys.stdin.buffer.read()))
    except NoPdf as error:
        return _fail(NOT_A_PDF, str(error))
    except NotConverted as error:
        return _fail(NOT_CONVERTED, str(error))
    except MemoryError:
        return _fail(NOT_CONVERTED, "the PDF needs too much memory")
    except Exception as error:
        # The same file would raise the same error again.
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return _fail(NOT_CONVERTED, f"can't convert the PDF: {reason}")
    sys.stdout.buffer.write(xml)
    sys.stdout.buffer.flush()
    return 0


def limit_resources() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    # The soft limit sends SIGXCPU, which says why; the hard limit sends SIGKILL.
    resource.setrlimit(resource.RLIMIT_CPU, (CONVERSION_SECONDS_MAX, CONVERSION_SECONDS_MAX + 1))
    # macOS rejects a limit on the address space. The time limits still apply.
    with suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (CONVERSION_MEMORY_BYTES_MAX,) * 2)


def _fail(code: int, text: str) -> int:
    sys.stderr.write(text)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
