"""A user's own tests: moto in place of AWS, with the package's clients or the user's."""

import unittest
from unittest import mock

import boto3
from moto import mock_aws
from store import CONFIG
from webhook_serializer import AsyncLeases, LeaseContended, Leases, NotCommitted

ENV = {
    "AWS_REGION": "eu-central-1",
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "ENTITIES_TABLE": "entities",
}
KEY = "shop/order/1"


@mock.patch.dict("os.environ", ENV)
@mock_aws
class TestMoto(unittest.TestCase):
    def make_tables(self):
        dynamodb = boto3.client("dynamodb", "eu-central-1", config=CONFIG)
        for table, key in (("entities", "entity"), ("totals", "order")):
            dynamodb.create_table(
                TableName=table,
                BillingMode="PAY_PER_REQUEST",
                KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
            )
        sqs = boto3.client("sqs", "eu-central-1", config=CONFIG)
        return dynamodb, sqs, sqs.create_queue(QueueName="wake-ups")["QueueUrl"]

    def check(self, leases):
        with leases.acquire(KEY) as lease:
            with self.assertRaises(LeaseContended):
                leases.acquire(KEY, wait=0)
            lease.extend()
        put = {
            "Put": {
                "TableName": "totals",
                "Item": {"order": {"S": KEY}, "raw": {"B": b"\x00\xff"}},
                "ConditionExpression": "attribute_not_exists(#o)",
                "ExpressionAttributeNames": {"#o": "order"},
            }
        }
        self.assertEqual(leases.commit(KEY, lambda lease: ("paid", [put])), "paid")
        with self.assertRaises(NotCommitted):
            leases.commit(KEY, lambda lease: ("paid", [put]))
        self.assertFalse(leases.lookup(KEY).held)

    def test_leases_from_the_environment_work(self):
        self.make_tables()
        self.check(Leases.from_env())

    def test_given_clients_work(self):
        dynamodb, sqs, queue = self.make_tables()
        self.check(Leases(table="entities", queue_url=queue, dynamodb=dynamodb, sqs=sqs))

    def test_asynchronous_leases_work(self):
        import asyncio

        self.make_tables()

        async def token(lease):
            return lease.token

        self.assertGreater(asyncio.run(AsyncLeases.from_env().run(KEY, token)), 0)


if __name__ == "__main__":
    unittest.main()
