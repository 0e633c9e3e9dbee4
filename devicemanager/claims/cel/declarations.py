"""Declarations of the functions and types that expressions can use.

``Library`` is the set of functions of one environment. Functions and overloads have the names that
cel-go v0.26 and Kubernetes' libraries (apiserver/pkg/cel/library, v0.36) give them. Costs and error
messages use these names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache

import attrs

from devicemanager.claims.cel.types import Type, parse_type, parse_types, type_of


@attrs.frozen(eq=False)
class Overload:
    """Overload of a function: the types of its parameters and of its result."""

    id: str
    is_member: bool
    """True for a method. Its first parameter is the receiver."""
    params: tuple[Type, ...]
    result: Type


Library = Mapping[str, tuple[Overload, ...]]
"""Mapping from the name of each function to its overloads."""

_COMPARABLE = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_TYPE_NAMES = {"duration": "google.protobuf.Duration", "timestamp": "google.protobuf.Timestamp"}

# Each line declares one overload: id = function(parameters) result. A method is
# <receiver>.function.
_STANDARD = """
conditional = _?_:_(bool, A, A) A
logical_and = _&&_(bool, bool) bool
logical_or = _||_(bool, bool) bool
logical_not = !_(bool) bool
not_strictly_false = @not_strictly_false(bool) bool
equals = _==_(A, A) bool
not_equals = _!=_(A, A) bool
add_bytes = _+_(bytes, bytes) bytes
add_double = _+_(double, double) double
add_duration_duration = _+_(duration, duration) duration
add_duration_timestamp = _+_(duration, timestamp) timestamp
add_timestamp_duration = _+_(timestamp, duration) timestamp
add_int64 = _+_(int, int) int
add_list = _+_(list(A), list(A)) list(A)
add_string = _+_(string, string) string
add_uint64 = _+_(uint, uint) uint
divide_double = _/_(double, double) double
divide_int64 = _/_(int, int) int
divide_uint64 = _/_(uint, uint) uint
modulo_int64 = _%_(int, int) int
modulo_uint64 = _%_(uint, uint) uint
multiply_double = _*_(double, double) double
multiply_int64 = _*_(int, int) int
multiply_uint64 = _*_(uint, uint) uint
negate_double = -_(double) double
negate_int64 = -_(int) int
subtract_double = _-_(double, double) double
subtract_duration_duration = _-_(duration, duration) duration
subtract_int64 = _-_(int, int) int
subtract_timestamp_duration = _-_(timestamp, duration) timestamp
subtract_timestamp_timestamp = _-_(timestamp, timestamp) duration
subtract_uint64 = _-_(uint, uint) uint
index_list = _[_](list(A), int) A
index_map = _[_](map(A, B), A) B
optional_list_index_int = _[_](optional(list(V)), int) optional(V)
optional_map_index_value = _[_](optional(map(K, V)), K) optional(V)
in_list = @in(A, list(A)) bool
in_map = @in(A, map(A, B)) bool
size_bytes = size(bytes) int
bytes_size = <bytes>.size() int
size_list = size(list(A)) int
list_size = <list(A)>.size() int
size_map = size(map(A, B)) int
map_size = <map(A, B)>.size() int
size_string = size(string) int
string_size = <string>.size() int
type = type(A) type(A)
bool_to_bool = bool(bool) bool
string_to_bool = bool(string) bool
bytes_to_bytes = bytes(bytes) bytes
string_to_bytes = bytes(string) bytes
double_to_double = double(double) double
int64_to_double = double(int) double
string_to_double = double(string) double
uint64_to_double = double(uint) double
duration_to_duration = duration(duration) duration
string_to_duration = duration(string) duration
to_dyn = dyn(A) dyn
int64_to_int64 = int(int) int
double_to_int64 = int(double) int
duration_to_int64 = int(duration) int
string_to_int64 = int(string) int
timestamp_to_int64 = int(timestamp) int
uint64_to_int64 = int(uint) int
string_to_string = string(string) string
bool_to_string = string(bool) string
bytes_to_string = string(bytes) string
double_to_string = string(double) string
duration_to_string = string(duration) string
int64_to_string = string(int) string
timestamp_to_string = string(timestamp) string
uint64_to_string = string(uint) string
timestamp_to_timestamp = timestamp(timestamp) timestamp
int64_to_timestamp = timestamp(int) timestamp
string_to_timestamp = timestamp(string) timestamp
uint64_to_uint64 = uint(uint) uint
double_to_uint64 = uint(double) uint
int64_to_uint64 = uint(int) uint
string_to_uint64 = uint(string) uint
contains_string = <string>.contains(string) bool
ends_with_string = <string>.endsWith(string) bool
starts_with_string = <string>.startsWith(string) bool
matches = matches(string, string) bool
matches_string = <string>.matches(string) bool
duration_to_hours = <duration>.getHours() int
duration_to_minutes = <duration>.getMinutes() int
duration_to_seconds = <duration>.getSeconds() int
duration_to_milliseconds = <duration>.getMilliseconds() int
"""

_OPTIONAL = """
optional_of = optional.of(V) optional(V)
optional_ofNonZeroValue = optional.ofNonZeroValue(V) optional(V)
optional_none = optional.none() optional(V)
optional_value = <optional(V)>.value() V
optional_hasValue = <optional(V)>.hasValue() bool
optional_or_optional = <optional(V)>.or(optional(V)) optional(V)
optional_orValue_value = <optional(V)>.orValue(V) V
select_optional_field = _?._(dyn, string) optional(V)
list_optindex_optional_int = _[?_](list(V), int) optional(V)
optional_list_optindex_optional_int = _[?_](optional(list(V)), int) optional(V)
map_optindex_optional_value = _[?_](map(K, V), K) optional(V)
optional_map_optindex_optional_value = _[?_](optional(map(K, V)), K) optional(V)
list_last = <list(V)>.last() optional(V)
list_first = <list(V)>.first() optional(V)
optional_unwrap = optional.unwrap(list(optional(V))) list(V)
optional_unwrapOpt = <list(optional(V))>.unwrapOpt() list(V)
"""

_EXTENSIONS = """
string_char_at_int = <string>.charAt(int) string
string_index_of_string = <string>.indexOf(string) int
string_index_of_string_int = <string>.indexOf(string, int) int
list_a_index_of_int = <list(A)>.indexOf(A) int
string_last_index_of_string = <string>.lastIndexOf(string) int
string_last_index_of_string_int = <string>.lastIndexOf(string, int) int
list_a_last_index_of_int = <list(A)>.lastIndexOf(A) int
string_lower_ascii = <string>.lowerAscii() string
string_upper_ascii = <string>.upperAscii() string
string_replace_string_string = <string>.replace(string, string) string
string_replace_string_string_int = <string>.replace(string, string, int) string
string_split_string = <string>.split(string) list(string)
string_split_string_int = <string>.split(string, int) list(string)
string_substring_int = <string>.substring(int) string
string_substring_int_int = <string>.substring(int, int) string
string_trim = <string>.trim() string
string_format = <string>.format(list(dyn)) string
strings_quote = strings.quote(string) string
list_join = <list(string)>.join() string
list_join_string = <list(string)>.join(string) string
list_slice = <list(T)>.slice(int, int) list(T)
list_flatten = <list(list(T))>.flatten() list(T)
list_flatten_int = <list(dyn)>.flatten(int) list(dyn)
lists_range = lists.range(int) list(int)
list_reverse = <list(T)>.reverse() list(T)
list_distinct = <list(T)>.distinct() list(T)
list_sets_contains_list = sets.contains(list(T), list(T)) bool
list_sets_equivalent_list = sets.equivalent(list(T), list(T)) bool
list_sets_intersects_list = sets.intersects(list(T), list(T)) bool
@mapInsert_map_key_value = cel.@mapInsert(map(K, V), K, V) map(K, V)
@mapInsert_map_map = cel.@mapInsert(map(K, V), map(K, V)) map(K, V)
"""

_KUBERNETES = """
string_to_quantity = quantity(string) Quantity
is_quantity_string = isQuantity(string) bool
quantity_sign = sign(Quantity) int
quantity_is_greater_than = <Quantity>.isGreaterThan(Quantity) bool
semver_is_greater_than = <Semver>.isGreaterThan(Semver) bool
quantity_is_less_than = <Quantity>.isLessThan(Quantity) bool
semver_is_less_than = <Semver>.isLessThan(Semver) bool
quantity_compare_to = <Quantity>.compareTo(Quantity) int
semver_compare_to = <Semver>.compareTo(Semver) int
quantity_get_float = <Quantity>.asApproximateFloat() double
quantity_get_int = <Quantity>.asInteger() int
quantity_is_integer = <Quantity>.isInteger() bool
quantity_add = <Quantity>.add(Quantity) Quantity
quantity_add_int = <Quantity>.add(int) Quantity
quantity_sub = <Quantity>.sub(Quantity) Quantity
quantity_sub_int = <Quantity>.sub(int) Quantity
string_to_semver = semver(string) Semver
string_bool_to_semver = semver(string, bool) Semver
is_semver_string = isSemver(string) bool
is_semver_string_bool = isSemver(string, bool) bool
semver_major = <Semver>.major() int
semver_minor = <Semver>.minor() int
semver_patch = <Semver>.patch() int
string_find_string = <string>.find(string) string
string_find_all_string = <string>.findAll(string) list(string)
string_find_all_string_int = <string>.findAll(string, int) list(string)
string_to_url = url(string) URL
is_url_string = isURL(string) bool
url_get_scheme = <URL>.getScheme() string
url_get_host = <URL>.getHost() string
url_get_hostname = <URL>.getHostname() string
url_get_port = <URL>.getPort() string
url_get_escaped_path = <URL>.getEscapedPath() string
url_get_query = <URL>.getQuery() map(string, list(string))
string_to_ip = ip(string) IP
cidr_ip = <CIDR>.ip() IP
is_ip = isIP(string) bool
ip_is_canonical = ip.isCanonical(string) bool
ip_to_string = string(IP) string
ip_family = <IP>.family() int
ip_is_unspecified = <IP>.isUnspecified() bool
ip_is_loopback = <IP>.isLoopback() bool
ip_is_link_local_multicast = <IP>.isLinkLocalMulticast() bool
ip_is_link_local_unicast = <IP>.isLinkLocalUnicast() bool
ip_is_global_unicast = <IP>.isGlobalUnicast() bool
string_to_cidr = cidr(string) CIDR
is_cidr = isCIDR(string) bool
cidr_to_string = string(CIDR) string
cidr_contains_ip_string = <CIDR>.containsIP(string) bool
cidr_contains_ip_ip = <CIDR>.containsIP(IP) bool
cidr_contains_cidr_string = <CIDR>.containsCIDR(string) bool
cidr_contains_cidr = <CIDR>.containsCIDR(CIDR) bool
cidr_prefix_length = <CIDR>.prefixLength() int
cidr_masked = <CIDR>.masked() CIDR
format-named = format.named(string) optional(Format)
format-validate = <Format>.validate(string) optional(list(string))
"""

INCLUDES = """
list_includes_dyn_dyn = <dyn>.includes(dyn) bool
"""

_AUTHORIZER = """
authorizer_path = <kubernetes.authorization.Authorizer>.path(string) dyn
authorizer_group = <kubernetes.authorization.Authorizer>.group(string) dyn
authorizer_serviceaccount = <kubernetes.authorization.Authorizer>.serviceAccount(string, string) dyn
groupcheck_resource = <kubernetes.authorization.GroupCheck>.resource(string) dyn
resourcecheck_subresource = <kubernetes.authorization.ResourceCheck>.subresource(string) dyn
resourcecheck_namespace = <kubernetes.authorization.ResourceCheck>.namespace(string) dyn
resourcecheck_name = <kubernetes.authorization.ResourceCheck>.name(string) dyn
resourcecheck_fieldSelector = <kubernetes.authorization.ResourceCheck>.fieldSelector(string) dyn
resourcecheck_labelSelector = <kubernetes.authorization.ResourceCheck>.labelSelector(string) dyn
resourcecheck_check = <kubernetes.authorization.ResourceCheck>.check(string) dyn
decision_allowed = <kubernetes.authorization.Decision>.allowed() bool
decision_reason = <kubernetes.authorization.Decision>.reason() string
decision_error = <kubernetes.authorization.Decision>.error() string
decision_errored = <kubernetes.authorization.Decision>.errored() bool
"""
"""Functions of an authorizer. Selectors cannot call these functions, because selectors have no
authorizer variable."""

FORMATS = (
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
)
"""Names of the string formats that expressions can check, such as ``uuid``.

Each format has a function ``format.NAME()``.
"""

_LINE = re.compile(
    r"(\S+) = (?:<(.*?)>\.)?(\S+?)\(((?:[^()]|\([^()]*(?:\([^()]*\))*[^()]*\))*)\) (.+)"
)


def declare(lines: str) -> Library:
    """Return the functions that ``lines`` declare. Each line declares one overload.

    The form of a line is ``ID = function(parameters) result``. A method is ``<receiver>.function``.
    """
    found: dict[str, list[Overload]] = {}
    for line in filter(None, lines.splitlines()):
        match = _LINE.fullmatch(line)
        assert match is not None, line
        id_, receiver, name, params, result = match.groups()
        types = [*([parse_type(receiver)] if receiver else []), *parse_types(params)]
        overload = Overload(id_, receiver is not None, tuple(types), parse_type(result))
        found.setdefault(name, []).append(overload)
    return {name: tuple(overloads) for name, overloads in found.items()}


def _comparisons() -> Iterator[str]:
    """Yield the overloads of the comparison operators. Numbers of different types are
    comparable."""
    symbols = {"less": "_<_", "less_equals": "_<=_", "greater": "_>_", "greater_equals": "_>=_"}
    numbers = {"int": "int64", "uint": "uint64", "double": "double"}
    for word, symbol in symbols.items():
        yield f"{word}_bool = {symbol}(bool, bool) bool"
        for one, name in numbers.items():
            yield f"{word}_{name} = {symbol}({one}, {one}) bool"
            for other in [each for each in numbers if each != one]:
                yield f"{word}_{name}_{numbers[other]} = {symbol}({one}, {other}) bool"
        for name in ("string", "bytes", "timestamp", "duration"):
            yield f"{word}_{name} = {symbol}({name}, {name}) bool"


_TIME_PARTS = {
    "getFullYear": "year",
    "getMonth": "month",
    "getDayOfYear": "day_of_year",
    "getDayOfMonth": "day_of_month",
    "getDate": "day_of_month_1_based",
    "getDayOfWeek": "day_of_week",
    "getHours": "hours",
    "getMinutes": "minutes",
    "getSeconds": "seconds",
    "getMilliseconds": "milliseconds",
}


def _families() -> Iterator[str]:
    """Yield the overloads of functions that exist for several types, such as ``sort``."""
    for function, name in _TIME_PARTS.items():
        yield f"timestamp_to_{name} = <timestamp>.{function}() int"
        yield f"timestamp_to_{name}_with_tz = <timestamp>.{function}(string) int"
    for name in _COMPARABLE:
        yield f"list_{name}_is_sorted_bool = <list({name})>.isSorted() bool"
        yield f"list_{name}_max_{name} = <list({name})>.max() {name}"
        yield f"list_{name}_min_{name} = <list({name})>.min() {name}"
        full = _TYPE_NAMES.get(name, name)
        yield f"list_{full}_sort = <list({name})>.sort() list({name})"
        yield (
            f"list_{full}_sortByAssociatedKeys ="
            f" <list(T)>.@sortByAssociatedKeys(list({name})) list(T)"
        )
    for name in ("int", "uint", "double", "duration"):
        yield f"list_{name}_sum_{name} = <list({name})>.sum() {name}"
    for name in FORMATS:
        yield f"format.{name} = format.{name}() Format"


@cache
def kubernetes_library() -> Library:
    """Return the functions that Kubernetes offers to all CEL expressions (base environment)."""
    generated = "\n".join([*_comparisons(), *_families()])
    parts = (_STANDARD, _OPTIONAL, _EXTENSIONS, _KUBERNETES, _AUTHORIZER, generated)
    return declare("\n".join(parts))


def merged(*libraries: Library) -> Library:
    """Return the functions of all libraries. A function that several libraries declare gets the
    overloads of all of them."""
    found: dict[str, tuple[Overload, ...]] = {}
    for library in libraries:
        for name, overloads in library.items():
            found[name] = (*found.get(name, ()), *overloads)
    return found


_TYPE_IDENTIFIERS = (
    "bool",
    "bytes",
    "double",
    "duration",
    "int",
    "list(A)",
    "map(A, B)",
    "null",
    "string",
    "timestamp",
    "type",
    "uint",
    "IP",
    "CIDR",
    "optional(V)",
)


@cache
def type_identifiers() -> Mapping[str, Type]:
    """Return the type of each identifier that names a type: ``int`` has the type ``type(int)``."""
    types = [parse_type(text) for text in _TYPE_IDENTIFIERS]
    return {each.name: type_of(each) for each in types}
