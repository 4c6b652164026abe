"""Orders of the example shop, and the outcomes that are planned for them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import NamedTuple

FEATURED_ORDER = 4711
FEATURED_FAILURES = 2
ALWAYS_FAILS = 1_000
MIN_ORDERS = 8

_CITIES = ("Zürich", "São Paulo", "北京", "Kraków", "Reykjavík", "Αθήνα", "Lyon", "Cork")
_TIERS = ("bronze", "silver", "gold")
_CURRENCIES = ("EUR", "CHF", "USD", "CNY")
_GOODS = ("teapot", "lamp", "notebook", "bicycle bell", "scarf", "Käsemesser", "chess set", "kite", "umbrella", "globe")
_LONG_ORDER_SHARE = 1 / 12


class OrderLine(NamedTuple):
    """Line of an order: a product and its quantity."""

    sku: str
    quantity: int
    price: float


@dataclass(frozen=True, slots=True)
class Order:
    """Order of the example shop, with its lines and its customer."""

    number: int
    customer: str
    city: str
    tier: str
    currency: str
    lines: tuple[OrderLine, ...]

    @property
    def key(self) -> str:
        """Business key that all messages of the order have."""
        return f"order-{self.number}"

    @property
    def amount(self) -> float:
        """Total price."""
        return round(sum(line.price * line.quantity for line in self.lines), 2)

    @property
    def user_properties(self) -> dict[str, str]:
        """Properties that consumers filter by."""
        return {"customerTier": self.tier, "currency": self.currency, "city": self.city}


@dataclass(frozen=True, slots=True)
class OrderPlan:
    """Orders with their planned outcomes, such as failed shipments.

    Attributes:
        orders: all orders by number, which is also the order of their times.
        rolled_back: numbers of orders that are rolled back.
        pending: numbers of orders whose transaction is never committed or rolled back.
        failures: number of failed shipments by order number; orders that succeed at once are absent.
    """

    orders: list[Order]
    rolled_back: set[int]
    pending: set[int]
    failures: dict[int, int]


def generate_orders(count: int, rng: random.Random, max_retries: int) -> OrderPlan:
    """Generate random orders with consecutive numbers, among them order 4711; every outcome occurs at least once.

    Raises:
        ValueError: if there are too few orders for that.
    """
    if count < MIN_ORDERS:
        raise ValueError(f"expected at least {MIN_ORDERS} orders, found {count}")
    first = FEATURED_ORDER - count // 2
    orders = [_generate_order(number, rng) for number in range(first, first + count)]
    numbers = [order.number for order in orders[:-1] if order.number != FEATURED_ORDER]
    # Orders that always fail must be early enough for their retries to end within the three days.
    early = numbers[: len(numbers) * 3 // 4]
    rng.shuffle(early)
    rolled_back = _take_order_numbers(early, count // 25)
    dead = _take_order_numbers(early, count // 50)
    retried = _take_order_numbers(early, count // 20)
    failures = {number: rng.randint(1, max_retries) for number in sorted(retried)} | dict.fromkeys(dead, ALWAYS_FAILS)
    failures[FEATURED_ORDER] = FEATURED_FAILURES
    return OrderPlan(orders, rolled_back, {orders[-1].number}, failures)


def _take_order_numbers(numbers: list[int], count: int) -> set[int]:
    return {numbers.pop() for _ in range(max(1, count))}


def _generate_order(number: int, rng: random.Random) -> Order:
    """Generate a random order; some are so long that their bodies are compressed."""
    count = rng.randint(60, 120) if rng.random() < _LONG_ORDER_SHARE else rng.randint(1, 5)
    lines = tuple(
        OrderLine(f"{rng.choice(_GOODS)}-{rng.randint(100, 999)}", rng.randint(1, 4), rng.randint(199, 9999) / 100)
        for _ in range(count)
    )
    return Order(
        number=number,
        customer=f"customer-{rng.randint(1, 200)}",
        city=rng.choice(_CITIES),
        tier=rng.choice(_TIERS),
        currency=rng.choice(_CURRENCIES),
        lines=lines,
    )
