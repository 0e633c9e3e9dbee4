"""Run a program within Kubernetes' cost limit.

A program consists of one step (see the module ``steps``), which evaluates the whole expression.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from devicemanager.claims.cel.limits import MAX_COST, Meter, NoAnswer, Spend
from devicemanager.claims.cel.steps import Scope, Step
from devicemanager.claims.cel.values import CelError, Value

_BUGS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError)


@attrs.frozen(eq=False)
class Program:
    """Expression that can be evaluated. It is immutable, so threads can share it."""

    _step: Step

    def run(self, variables: Mapping[str, Value], spend: Spend | None = None) -> Value:
        """Return the value of the expression.

        During the evaluation, ``spend`` is called with the number of cost units that were spent
        since its last call. If the evaluation fails, raise CelError or EvaluationStopped. An
        exception that ``spend`` raises ends the evaluation.
        """
        meter = Meter(MAX_COST, spend)
        try:
            value = self._step(Scope(dict(variables), meter))
        except CelError:
            meter.report()
            raise
        except _BUGS as error:
            # A bug of this package must not stop the kubelet.
            raise NoAnswer(f"a bug of devicemanager: {error!r}") from error
        meter.report()
        return value
