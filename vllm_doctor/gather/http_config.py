"""A file in Prometheus' own form of `http_config` (promtool's --http.config.file): how a site's server is asked."""

import base64
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from vllm_doctor.gather.bounded import whole_file
from vllm_doctor.gather.http import Login
from vllm_doctor.records.reading import Known

_MOST = 1 << 16
_NEEDED = "needed: Prometheus' http_config: basic_auth, authorization, tls_config"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Wrong(msgspec.Struct, frozen=True):
    """The file cannot be used; `why` names the file, what was found and what is needed, and no secret."""

    why: str


class _Basic(msgspec.Struct, forbid_unknown_fields=True):
    username: str
    password: str | None = None
    password_file: str | None = None


class _Token(msgspec.Struct, forbid_unknown_fields=True):
    type: str = "Bearer"
    credentials: str | None = None
    credentials_file: str | None = None


class _Tls(msgspec.Struct, forbid_unknown_fields=True):
    ca_file: str | None = None
    server_name: str | None = None
    insecure_skip_verify: bool = False


class _File(msgspec.Struct, forbid_unknown_fields=True):
    basic_auth: _Basic | None = None
    authorization: _Token | None = None
    tls_config: _Tls = msgspec.field(default_factory=_Tls)


def read(name: str) -> Login | Wrong:
    """What the file says; the files that it names are looked for beside it."""
    import yaml

    from vllm_doctor.launch import bounded_yaml

    text = whole_file(name, _MOST)
    if not isinstance(text, Known):
        return Wrong(text.reason)
    try:
        told = msgspec.convert(bounded_yaml.value(text.value), _File)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        return Wrong(f"{name}: it is not YAML; {_NEEDED}")
    except msgspec.ValidationError as wrong:
        return Wrong(f"{name}: {wrong}; {_NEEDED}")
    sent = _sent(told, Path(name).parent)
    if isinstance(sent, Wrong):
        return Wrong(f"{name}: {sent.why}")
    tls = told.tls_config
    ca = str(Path(name).parent / tls.ca_file) if tls.ca_file else None
    if ca is not None and not isinstance(whole_file(ca, 16 * _MOST), Known):
        return Wrong(f"{name}: tls_config: ca_file: {ca} cannot be read")
    return Login(sent, ca_file=ca, server_name=tls.server_name, verify=not tls.insecure_skip_verify)


def in_plain_text(url: str, login: Login) -> bool:
    """Whether the password would go over a network for all to read."""
    parts = urlsplit(url)
    return bool(login.authorization) and parts.scheme == "http" and parts.hostname not in LOOPBACK


def _sent(told: _File, folder: Path) -> str | Wrong | None:
    """The header Authorization."""
    basic, token = told.basic_auth, told.authorization
    if basic is not None and token is not None:
        return Wrong("it has both basic_auth and authorization; needed: one of them")
    if basic is not None:
        secret = _secret("basic_auth", "password", basic.password, basic.password_file, folder)
        if isinstance(secret, Wrong):
            return secret
        return "Basic " + base64.b64encode(f"{basic.username}:{secret}".encode()).decode()
    if token is not None:
        secret = _secret("authorization", "credentials", token.credentials, token.credentials_file, folder)
        return secret if isinstance(secret, Wrong) else f"{token.type} {secret}"
    return None


def _secret(part: str, word: str, value: str | None, file: str | None, folder: Path) -> str | Wrong:
    if (value is None) == (file is None):
        return Wrong(f"{part} needs either {word} or {word}_file")
    if file is None:
        return value or ""
    text = whole_file(folder / file, _MOST)
    if not isinstance(text, Known):
        return Wrong(f"{part} names a file that cannot be read ({text.reason})")
    try:
        return text.value.decode().strip()
    except UnicodeDecodeError:
        return Wrong(f"{part} names a file that is not text ({folder / file})")
