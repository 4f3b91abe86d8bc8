"""Typed settings, read once: described in `model`, loaded by `load_settings`, shown by `show_settings`.

No other room reads the process's environment.
"""

from __future__ import annotations

from proctor.config.load import (
    LOCAL_FILE,
    SHARED_FILE,
    current_directory,
    environment,
    find_workspace,
    is_loopback,
    load_settings,
)
from proctor.config.model import (
    PROFILES,
    AgentSettings,
    ApiSettings,
    LimitSettings,
    ProjectSettings,
    RawTable,
    RetentionSettings,
    Settings,
)
from proctor.config.options import OPTIONS, Option
from proctor.config.page import render_settings_page
from proctor.config.paths import Paths
from proctor.config.secrets import hide, hide_password, is_secret_name
from proctor.config.show import Row, show_settings

__all__ = [
    "LOCAL_FILE",
    "OPTIONS",
    "PROFILES",
    "SHARED_FILE",
    "AgentSettings",
    "ApiSettings",
    "LimitSettings",
    "Option",
    "Paths",
    "ProjectSettings",
    "RawTable",
    "RetentionSettings",
    "Row",
    "Settings",
    "current_directory",
    "environment",
    "find_workspace",
    "hide",
    "hide_password",
    "is_loopback",
    "is_secret_name",
    "load_settings",
    "render_settings_page",
    "show_settings",
]
