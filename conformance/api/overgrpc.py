"""Google's libraries over gRPC, behind the calls that the tests over REST make."""

import asyncio

import grpc
from google.auth.credentials import AnonymousCredentials


def synchronous(client, channel):
    """A client of the library over a channel, as it comes out of the box but for the address."""
    transport = client.get_transport_class("grpc")(channel=channel, credentials=AnonymousCredentials())
    return client(transport=transport)


class Loop:
    """An event loop that runs what a test of one thread asks for."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()

    def run(self, awaitable):
        async def all_of_it():
            return await awaitable
        return self.loop.run_until_complete(all_of_it())

    def close(self):
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()


class Operation:
    """An operation of the asynchronous library, waited for where a test waits."""

    def __init__(self, loop, operation):
        self.loop, self.of = loop, operation
        self.operation, self.metadata = operation.operation, operation.metadata

    def done(self):
        return self.loop.run(self.of.done())

    def result(self, timeout):
        return self.loop.run(self.of.result(timeout=timeout))


class Asynchronous:
    """The asynchronous client of a library, called as the synchronous one is."""

    def __init__(self, client, target):
        self.loop = Loop()
        self.channel = None

        async def connect():
            self.channel = grpc.aio.insecure_channel(target)
            transport = client.get_transport_class("grpc_asyncio")(
                channel=self.channel, credentials=AnonymousCredentials())
            return client(transport=transport)
        self.client = self.loop.run(connect())

    def close(self):
        self.loop.run(self.channel.close())
        self.loop.close()

    def __getattr__(self, name):
        method = getattr(self.client, name)

        async def answer(arguments, keywords):
            answer = await method(*arguments, **keywords)
            if hasattr(answer, "__aiter__"):
                return [item async for item in answer]
            return answer

        def call(*arguments, **keywords):
            answered = self.loop.run(answer(arguments, keywords))
            return Operation(self.loop, answered) if hasattr(answered, "operation") else answered
        return call
