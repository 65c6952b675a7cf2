"""The `holdfast` command, also as `python -m holdfast`."""

from holdfast.interrupts import end_at_interrupt


def main() -> None:
    end_at_interrupt()
    from holdfast.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
