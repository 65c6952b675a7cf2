"""The process that converts one PDF: PDF on stdin, XML on stdout, a code at its end."""

from __future__ import annotations

import logging
import resource
import sys
from contextlib import suppress

from holdfast_systems.convert.limits import CONVERSION_MEMORY_BYTES_MAX, CONVERSION_SECONDS_MAX

NO_PDF = 3
NOT_CONVERTED = 4


def main(mapping: str) -> int:
    limit_resources()
    logging.disable()  # What the library has to say would be taken for a refusal.
    # Only now: what follows works on a stranger's file.
    from holdfast_systems.convert.gateway.mappings import write_xml
    from holdfast_systems.convert.gateway.pages import NoPdf, NotConverted
    from holdfast_systems.convert.gateway.reader import read_document

    try:
        xml = write_xml(mapping, read_document(sys.stdin.buffer.read()))
    except NoPdf as error:
        return _tell(NO_PDF, str(error))
    except NotConverted as error:
        return _tell(NOT_CONVERTED, str(error))
    except MemoryError:
        return _tell(NOT_CONVERTED, "the PDF needs too much memory")
    except Exception as error:
        # The same file raises the same error again, whoever converts it.
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return _tell(NOT_CONVERTED, f"the PDF can't be converted: {reason}")
    sys.stdout.buffer.write(xml)
    sys.stdout.buffer.flush()
    return 0


def limit_resources() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    # The first limit ends it with SIGXCPU; at the second it would be SIGKILL, which tells nothing.
    resource.setrlimit(resource.RLIMIT_CPU, (CONVERSION_SECONDS_MAX, CONVERSION_SECONDS_MAX + 1))
    # macOS refuses a limit of the address space; the limits of time stay.
    with suppress(ValueError):
        limit = CONVERSION_MEMORY_BYTES_MAX
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _tell(code: int, text: str) -> int:
    sys.stderr.write(text)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
