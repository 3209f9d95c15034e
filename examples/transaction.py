"""A job and a row of one's own, together or not at all."""

import sqlalchemy as sa

import jobboard

engine = sa.create_engine("sqlite:///shop.db")
orders = sa.Table(
    "orders", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("shipped", sa.Boolean)
)
orders.metadata.create_all(engine)

with jobboard.backend("shop", "sqlite:///shop.db") as board:
    with engine.begin() as connection:
        order = connection.execute(orders.insert().values(shipped=False)).inserted_primary_key[0]
        board.post("ship", details={"order": order}, connection=connection)

    job = board.claim_next("me")
    with engine.begin() as connection:
        connection.execute(orders.update().where(orders.c.id == job.details["order"]).values(shipped=True))
        board.consume(job, "me", connection=connection)
    print("shipped order", job.details["order"], "and", board.job_count, "jobs are left")
