"How wide a property is tried: a few examples in every run, many behind `slow`. Both are the same in each run, so that a failure is seen again."
import pytest
from hypothesis import HealthCheck, given, settings

def few_or_many(few, many): return pytest.mark.parametrize('n', [few, pytest.param(many, marks=pytest.mark.slow)])

def examples(n): return settings(max_examples=n, suppress_health_check=list(HealthCheck))

def wide(few, many, *args, **kw):
    "A test of a property: `few` examples of what `given` gives by default, `many` behind `slow`"
    def test_of(check):
        @few_or_many(few, many)
        def test(n): examples(n)(given(*args, **kw)(check))()
        test.__doc__ = check.__doc__
        return test
    return test_of
