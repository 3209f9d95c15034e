"""Place an order: ``python place.py CUSTOMER EMAIL TOTAL``."""

import datetime
import decimal
import sys
import uuid

from shop import Order, board, charge

if __name__ == "__main__":
    customer, email, total = sys.argv[1:]
    today = datetime.datetime.now(datetime.UTC).date()
    order = Order(uuid.uuid4(), email, decimal.Decimal(total), today + datetime.timedelta(days=2))
    with board:
        # The key posts an order once. The group stays readable, and finds all jobs of a customer.
        print(charge.post.options(key=str(order.number), group=customer)(order).uuid)
