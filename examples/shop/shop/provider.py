"""A payment provider for development: `uvicorn shop.provider:app --port 8001`.

Cards that end in 0002 are declined. For cards that end in 0500, the first answer is an error.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Header, HTTPException
from pydantic import BaseModel

app = FastAPI()
charges: dict[str, Charge] = {}  # by idempotency key
asked: list[str] = []


class Card(BaseModel):
    card: str
    amount: str


class Charge(Card):
    id: str


@app.post("/charges", status_code=201)
def charge(card: Card, idempotency_key: Annotated[str, Header()]) -> Charge:
    asked.append(idempotency_key)
    if card.card.endswith("0002"):
        raise HTTPException(402, "declined")
    if card.card.endswith("0500") and asked.count(idempotency_key) == 1:
        raise HTTPException(500, "try again")
    made = Charge(id=f"ch_{len(charges) + 1}", **card.model_dump())
    return charges.setdefault(idempotency_key, made)


@app.get("/charges")
def list_charges() -> list[Charge]:
    return list(charges.values())
