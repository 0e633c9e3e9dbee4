"""What every application of ours does with a request, whatever it answers."""

from __future__ import annotations

import abc

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from devicemanager.control.limits import Budget
from devicemanager.control.sending import Answer

__all__ = ["Answering"]


class Answering(abc.ABC):
    """An ASGI application. A request has an ``account`` in its scope for what it takes."""

    def __init__(self) -> None:
        self._budget = Budget()

    @abc.abstractmethod
    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check who asks, and answer. Raises what ``_rejection`` tells."""

    @abc.abstractmethod
    def _rejection(self, error: Exception, scope: Scope) -> Answer:
        """What is answered instead."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        with self._budget.account() as account:
            scope.update(account=account, app=self)  # with an app, starlette's router raises
            try:
                await self._answer(scope, receive, sending)
            except ClientDisconnect:
                return
            except Exception as error:
                answer = self._rejection(error, scope)
                if started:
                    raise  # the connection is cut, so that nobody takes this for the end
                await answer(scope, receive, send)
