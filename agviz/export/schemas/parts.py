"""What JSON Schemas are put together from.

They are strict here: a field that none of them names is refused, which is how the tests find out
what is missing. :func:`opened` is the form for readers, who have to expect fields and kinds that
later releases of agviz add (docs/formats.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from agviz.words.documents import DOCUMENTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Schema: TypeAlias = dict[str, Any]

TEXT: Final[Schema] = {"type": "string"}
INTEGER: Final[Schema] = {"type": "integer"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
NUMBER: Final[Schema] = {"type": "number"}
TRUTH: Final[Schema] = {"type": "boolean"}


def about(schema: Schema, text: str) -> Schema:
    """The same, with a description."""
    return {**schema, "description": text}


def array(items: Schema) -> Schema:
    """A list of any length."""
    return {"type": "array", "items": items}


def pair(first: Schema, second: Schema) -> Schema:
    """A list of two."""
    return {"type": "array", "prefixItems": [first, second], "items": False, "minItems": 2}


def mapping(values: Schema) -> Schema:
    """An object whose names are data."""
    return {"type": "object", "additionalProperties": values}


def words(known: Iterable[str]) -> Schema:
    """One of these texts, to which a version adds none."""
    return {"type": "string", "enum": [str(word) for word in known]}


def ref(name: str) -> Schema:
    """What a document defines under this name."""
    return {"$ref": f"#/$defs/{name}"}


def nullable(schema: Schema) -> Schema:
    """The same, or null."""
    if isinstance(schema.get("type"), str) and "enum" not in schema:
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def fields(properties: Mapping[str, Schema], *, optional: Iterable[str] = ()) -> Schema:
    """An object with these fields and no others; ``optional`` ones may be missing."""
    may_miss = set(optional)
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [name for name in properties if name not in may_miss],
        "additionalProperties": False,
    }


def kinds(options: Mapping[str, Schema], by: str = "kind") -> Schema:
    """An object of one of several kinds, which its first field names."""
    return {
        "oneOf": [
            {
                **schema,
                "properties": {by: {"const": kind}, **schema["properties"]},
                "required": [by, *schema["required"]],
            }
            for kind, schema in options.items()
        ]
    }


def document(
    name: str,
    call: str,
    text: str,
    properties: Mapping[str, Schema],
    defined: Mapping[str, Schema],
    *,
    optional: Iterable[str] = (),
) -> Schema:
    """A whole document.

    Args:
        name: one of :data:`agviz.words.documents.DOCUMENTS`.
        call: what writes it.
        text: what it says.
        properties: its fields, besides those that all documents begin with.
        defined: what :func:`ref` names, as far as the document uses it.
        optional: fields that may be missing.
    """
    head: dict[str, Schema] = {
        "document": {"const": name},
        "version": {"const": DOCUMENTS[name]},
    }
    found = {**identified(name, call, text), **fields({**head, **properties}, optional=optional)}
    return {**found, "$defs": dict(defined)} if defined else found


def identified(name: str, call: str, text: str) -> Schema:
    """What each schema of a document begins with."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:agviz:{name}:{DOCUMENTS[name]}",
        "title": call,
        "description": text,
    }


def opened(schema: Any) -> Any:
    """The schema as readers use it: further fields, and objects of further kinds, may be there."""
    if isinstance(schema, list):
        return [opened(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        key: opened(value)
        for key, value in schema.items()
        if not (key == "additionalProperties" and value is False)
    }
    if "oneOf" in found:
        by = found["oneOf"][0]["required"][0]
        known = [each["properties"][by]["const"] for each in found["oneOf"]]
        other = {"properties": {by: {"type": "string", "not": {"enum": known}}}}
        found["oneOf"].append({"type": "object", "required": [by], **other})
    return found
