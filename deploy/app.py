"""A job for trying out the image. Replace this file with your application."""

from holdfast import Context, Holdfast

hf = Holdfast()


@hf.job(queue="mail")
async def greet(ctx: Context, name: str) -> str:
    return f"Hello, {name}!"
