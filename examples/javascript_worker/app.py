"""The app of the README: one job, which workers in any language run."""

from holdfast import Holdfast

hf = Holdfast("sqlite:///jobs.db")


@hf.job(executor="remote")
def resize(image: int, width: int) -> dict[str, int]:
    """Make an image smaller."""
    raise NotImplementedError
