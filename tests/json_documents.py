"""What agviz writes as JSON, held against the schemas by a validator that is not ours."""

from __future__ import annotations

import functools
import json
from typing import Any, NoReturn

from jsonschema import Draft202012Validator

from agviz.export.schemas.catalogue import STRICT, schema


def _no_json(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is no JSON")


@functools.cache
def validators(name: str) -> tuple[Draft202012Validator, Draft202012Validator]:
    """The strict one, which refuses what is not named, and that of readers."""
    both = STRICT[name](), schema(name)
    for each in both:
        Draft202012Validator.check_schema(each)
    strict, open_ = map(Draft202012Validator, both)
    return strict, open_


def hold(text: str, name: str) -> dict[str, Any]:
    """The document, which has to be of that name and as both forms of its schema say."""
    found: dict[str, Any] = json.loads(text, parse_constant=_no_json)
    where = found["otherData"] if name == "chrome-trace" else found
    assert where["document"] == name
    for validator in validators(name):
        wrong = [
            f"{error.json_path}: {error.message[:300]}" for error in validator.iter_errors(found)
        ]
        assert not wrong, "\n".join(wrong)
    return found
