"""TOML files and `TRIAGE_*` variables in, one validated `Settings` out.

Read from /etc/triage/triage.toml and /etc/triage/triage.toml.d/*.toml (where neither exists: the user's XDG folder).
Arguments beat `TRIAGE_*` (nested: `TRIAGE_WEB__PORT`), which beat the files, which beat the defaults. All errors are
told at once, each with the file or variable it comes from. Called by the command line only; no other room reads the
environment. Secrets are read from files at the moment of use and never become part of this object.
"""

from __future__ import annotations

import os
import pwd
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from triage.actionmodel import Level
from triage.model import InputError
from triage.shipped import is_checkout

ETC = Path("/etc/triage")
VAR = Path("/var/lib/triage")
USER = "triage"
UNIT_FOLDERS = (Path("/etc/systemd/system"), Path("/usr/lib/systemd/system"), Path("/lib/systemd/system"))
_DAY, _CLOCK = "(?:mon|tue|wed|thu|fri|sat|sun)", "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
WINDOW = f"(?:({_DAY})(?:-({_DAY}))? )?({_CLOCK})-({_CLOCK})"  # 'Sat-Sun 01:00-05:00'; local time
EVENTS = (
    "incident.opened",
    "incident.repeated",
    "incident.regressed",
    "incident.resolved",
    "action.proposed",
    "action.started",
    "action.verified",
    "action.rolled_back",
    "action.rollback_failed",
    "action.refused",
    "action.retired",
    "workaround.retirable",
    "breaker.opened",
)


def _words(value: object) -> object:
    """A list may be written as one string, as variables and arguments have it: words between blanks or commas."""
    return tuple(word for word in re.split(r"[\s,]+", value) if word) if isinstance(value, str) else value


def _known_event(event: str) -> str:
    if event not in EVENTS:
        raise ValueError(f"unknown event '{event}'; there are: {', '.join(EVENTS)}")
    return event


def _web_url(url: str) -> str:
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise ValueError(f"'{url}' is not an http or https address")
    return url.rstrip("/")


Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)]


class Webhook(BaseModel):
    """One receiver of Standard Webhooks. Its secrets lie in a file, one `whsec_...` a line (several while rotating)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[a-z0-9._-]{1,64}$")
    url: Annotated[str, AfterValidator(_web_url)]
    secret_file: Path | None = None  # else $CREDENTIALS_DIRECTORY/webhook-NAME
    events: tuple[Annotated[str, AfterValidator(_known_event)], ...] = EVENTS
    timeout_seconds: float = Field(default=10.0, gt=0, le=60)

    def secrets(self) -> tuple[str, ...]:
        """The secrets as they are in the file now, so that a rotation needs no restart."""
        path = self.secret_file
        if path is None and (folder := os.environ.get("CREDENTIALS_DIRECTORY")):
            path = Path(folder) / f"webhook-{self.name}"
        if path is None:
            return ()
        try:
            return tuple(path.read_text(encoding="utf-8").split())
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"the secret of webhook '{self.name}' cannot be read from {path}: {error}") from error


class ProofSettings(BaseModel):
    """How an applied remedy is proved in the background; a rule's `verify` goes before it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    soak: int = Field(default=150, ge=0, le=2000)  # requests
    rate: float = Field(default=1.0, gt=0, le=50)  # of them in a second, at most
    timeout_seconds: float = Field(default=120.0, gt=0, le=3600)  # for one answer
    min_speed: float = Field(default=0.6, ge=0, le=1)  # share of the speed before that has to be left


class Web(BaseModel):
    """Where the dashboard listens and under which address its pages are linked."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str = "127.0.0.1"
    port: int = Field(default=8475, ge=0, le=65535)
    base_url: Annotated[str, AfterValidator(_web_url)] | None = None


class Guards(BaseModel):
    """How much may be applied to this machine in a day, and when all of it stops until a person looks."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    signature_per_day: int = Field(default=4, ge=1)
    unit_per_day: int = Field(default=8, ge=1)
    host_per_day: int = Field(default=24, ge=1)
    breaker_actions: int = Field(default=8, ge=2)  # so many within breaker_seconds open the breaker
    breaker_seconds: int = Field(default=1800, ge=1)


class AutonomyRule(BaseModel):
    """How far triage goes for rules and units of these names (globs). Of several that fit the last one holds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rule: str = "*"
    unit: str = "*"
    level: Level


class Autonomy(BaseModel):
    """What is done about a crash unasked. Off by default: `observe`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    level: Level = Level.OBSERVE
    rules: tuple[AutonomyRule, ...] = ()
    windows: tuple[Annotated[str, Field(pattern=f"(?i)^{WINDOW}$")], ...] = ()
    history: int = Field(default=1, ge=1)  # how often a remedy must have held on this host before
    fresh_seconds: int = Field(default=900, ge=1)  # older crashes are news for people only
    shadow: bool = False


class Settings(BaseSettings):
    """Everything that can be set. `load_settings()` makes it; the paths that were left out are filled in."""

    model_config = SettingsConfigDict(
        env_prefix="TRIAGE_", env_nested_delimiter="__", extra="forbid", frozen=True, case_sensitive=False
    )

    units: Words = ("sglang*.service",)  # globs
    state_dir: Path = Path()
    database: str = ""  # SQLAlchemy URL
    spool: Path = Path()
    apply_dir: Path = Path()  # root's own folder: claims, results
    runtime_dir: Path = Path()  # the token of the dashboard
    policy: Path = ETC / "policy.toml"
    rules: Annotated[
        tuple[Path, ...], NoDecode, BeforeValidator(_words)
    ] = ()  # folders, over the shipped ones and the site's
    web: Web = Web()
    guards: Guards = Guards()
    autonomy: Autonomy = Autonomy()
    proof: ProofSettings = ProofSettings()
    webhooks: tuple[Webhook, ...] = ()
    rollback_window_seconds: int = Field(default=600, ge=0)  # how long a signature must stay away after an action
    retention_days: int = Field(default=90, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, given: dict[str, Any]) -> dict[str, Any]:
        given = dict(given)
        state = given.setdefault("state_dir", _state_dir())
        if not isinstance(state, str | Path):
            return given  # its own error is told by the field
        state = Path(state)
        given.setdefault("database", f"sqlite:///{state / 'triage.db'}")
        given.setdefault("spool", state / "spool")
        given.setdefault("apply_dir", VAR.with_name("triage-apply") if state == VAR else state / "apply")
        given.setdefault("runtime_dir", _runtime_dir(state))
        return given

    @model_validator(mode="after")
    def _names_differ(self) -> Settings:
        names = [hook.name for hook in self.webhooks]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two webhooks are called '{twice[0]}'")
        return self

    @property
    def installed(self) -> bool:
        """See the function of that name."""
        return installed()

    @property
    def base_url(self) -> str:
        """The address links begin with, without a slash at the end."""
        host = f"[{self.web.host}]" if ":" in self.web.host else self.web.host
        return self.web.base_url or f"http://{host}:{self.web.port}"

    def at_port(self, port: int) -> Settings:
        """The same with the port that was really bound, for links and cookies."""
        return self.model_copy(update={"web": self.web.model_copy(update={"port": port})})

    def shown(self) -> dict[str, Any]:
        """For people: as in the file, with what may be secret in an address masked."""
        document = self.model_dump(mode="json")
        document["database"] = mask_url(self.database)
        for hook in document["webhooks"]:
            hook["url"] = mask_url(hook["url"])
        return document

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments and files arrive merged by `load_settings`; the variables are asked there."""
        return (init_settings,)


def installed() -> bool:
    """True where triage's units are on this machine and this code is not a checkout beside them."""
    return not is_checkout() and any((folder / "triage-apply.path").exists() for folder in UNIT_FOLDERS)


def load_settings(file: Path | None = None, arguments: Mapping[str, Any] | None = None) -> Settings:
    """The one settings object. `file` reads that file instead of the usual ones (as $TRIAGE_CONFIG does).

    `arguments`: what the command line was given, {} or None for nothing; a value of None counts as not given.
    """
    errors: list[str] = []
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for path in setting_files(file):
        _merge(values, origin, _read(path, errors), str(path))
    try:
        variables = EnvSettingsSource(Settings)()
        _merge(values, origin, variables, "environment")
    except SettingsError as error:
        errors.append(f"environment: {error}")
    _merge(values, origin, {k: v for k, v in (arguments or {}).items() if v is not None}, "arguments")
    try:
        settings = Settings(**values)
    except ValidationError as error:
        errors.extend(_told(error, origin))
    if errors:
        raise InputError("the settings are not valid:\n  " + "\n  ".join(errors))
    return settings


def setting_files(file: Path | None = None) -> tuple[Path, ...]:
    """The files that are read, in order: later ones win."""
    if file is None and (named := os.environ.get("TRIAGE_CONFIG")):
        file = Path(named)
    if file is not None:
        if not file.is_file():
            raise InputError(f"the settings file {file} does not exist")
        return (file,)
    own = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "triage"
    for base in (ETC, own):
        found = [base / "triage.toml", *sorted((base / "triage.toml.d").glob("*.toml"))]
        if present := tuple(path for path in found if path.is_file()):
            return present
    return ()


def mask_url(url: str) -> str:
    """The address without what may be secret in it: user information and query."""
    return re.sub(r"\?[^#]*", "?***", re.sub(r"(?<=://)[^/@]*@", "***@", url))


def _read(path: Path, errors: list[str]) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        errors.append(f"{path}: not valid TOML: {error}")
    except OSError as error:
        errors.append(f"{path}: cannot be read: {error.strerror}")
    return {}


def _merge(values: dict[str, Any], origin: dict[str, str], new: Mapping[str, Any], where: str, at: str = "") -> None:
    """Tables are merged key by key, all else is replaced; `origin` remembers who said what last."""
    for key, value in new.items():
        origin[at + key] = where
        if isinstance(value, dict) and isinstance(values.get(key), dict):
            _merge(values[key], origin, value, where, f"{at}{key}.")
        else:
            values[key] = dict(value) if isinstance(value, dict) else value
            if isinstance(value, dict):
                origin.update({f"{at}{key}.{inner}": where for inner in value})


def _told(error: ValidationError, origin: Mapping[str, str]) -> Iterator[str]:
    for fault in error.errors():
        name = ".".join(str(part) for part in fault["loc"])
        known = [".".join(name.split(".")[:n]) for n in range(len(fault["loc"]), 0, -1)]
        where = next((origin[key] for key in known if key in origin), "settings")
        text = "unknown setting" if fault["type"] == "extra_forbidden" else fault["msg"].removeprefix("Value error, ")
        yield f"{where}: {name}: {text}" if name else f"{where}: {text}"


def _state_dir() -> Path:
    if folders := os.environ.get("STATE_DIRECTORY"):
        return Path(folders.split(":")[0])
    if _user() == USER:
        return VAR
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "triage"


def _runtime_dir(state: Path) -> Path:
    if folders := os.environ.get("RUNTIME_DIRECTORY"):
        return Path(folders.split(":")[0])
    if state == VAR:
        return Path("/run/triage")
    folder = os.environ.get("XDG_RUNTIME_DIR")
    return Path(folder) / "triage" if folder else state / "run"


def _user() -> str:
    """By uid, not by $LOGNAME: a variable left over from sudo must not move the state."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return ""
