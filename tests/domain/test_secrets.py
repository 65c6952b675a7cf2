"""No password, token or key in a text that is shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.limits import ERROR_TEXT_CHARS_MAX
from holdfast.domain.secrets import masked, shown_url
from holdfast.domain.texts import error_text

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:s3cr3t@h:5432/d", "postgresql://u:***@h:5432/d"),
        ("postgresql://u:s3/cr@3t@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:s3?cr3t@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:a b@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u@corp:s3cr3t@h/d", "postgresql://u@corp:***@h/d"),
        ("postgresql://u:12?s3cr3t@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:1/2?s3cr3t@h/d", "postgresql://u:***@h/d"),
        ("postgresql:///d?user=u&password=s3cr3t&x=1", "postgresql:///d?user=u&password=***&x=1"),
        ("postgresql://h/d?sslpassword=s3cr3t", "postgresql://h/d?sslpassword=***"),
        ("host=h password='s3 cr3t' user=u", "host=h password=*** user=u"),
        ("postgresql://u@h:5432/d", "postgresql://u@h:5432/d"),
        ("postgresql://h:5432/d?options=a@b", "postgresql://h:5432/d?options=a@b"),
        ("sqlite:///a:b@c.db", "sqlite:///a:b@c.db"),
        ("sqlite:////var/lib/jobs.db", "sqlite:////var/lib/jobs.db"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert shown_url(url) == shown


WRONG = [
    f"postgresql://u:{SECRET}@h/d",
    f"postgresql://u:1/{SECRET}@h/d",
    f"postgresql://u:1?{SECRET}@h/d",
    f"postgresql://u:1#{SECRET}@h/d",
    f"postgresql://u:1@{SECRET}@h/d",
    f"postgresql://u:1:{SECRET}@h/d",
    f"postgresql://u/x:{SECRET}@h/d",
    f"postgresql://u#x:{SECRET}@h/d",
    f"postgresql://u:{SECRET}%40%2F@[::1]:5432/d",
    f"postgresql://u:{SECRET}@h1:1,h2:2/d?target_session_attrs=any",
    f"postgresql://u:{SECRET}@h/d?application_name=a@b",
    f"postgresql://h/d?user=u&password={SECRET}",
    f"postgresql://h/d?password=1#{SECRET}",
    f"postgresql://h/d?password=1&{SECRET}&user=u",
    f"host=h password={SECRET} user=u",
    f"host=h password='1 {SECRET}' user=u",
    f"host=h password=1\\ {SECRET} user=u",
    f"host=h sslpassword=1&{SECRET}",
    f"https://u:{SECRET}@example.com/?next=https://example.org",
]


@pytest.mark.parametrize("url", WRONG)
def test_a_password_is_hidden_in_every_form_of_an_address(url: str) -> None:
    assert SECRET not in shown_url(url)
    said = f"can't reach {url}: no"
    for text in (url, said, repr(said), f"bad {url!r}", f'bad "{url}"\nagain'):
        assert SECRET not in masked(text)
        assert SECRET not in error_text(ValueError(text))


def test_a_password_in_an_address_without_a_scheme_is_hidden() -> None:
    assert shown_url(f"u:{SECRET}@h/d") == "u:***@h/d"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"password": "a\\" b", "x": 1}', '{"password": ***, "x": 1}'),
        ("{'client_secret': 'a', 'x': 1}", "{'client_secret': ***, 'x': 1}"),
        ("grant_type=x&client_secret=a&y=1", "grant_type=x&client_secret=***&y=1"),
        ("access_token=abc", "access_token=***"),
        ("Authorization: Bearer abc.def", "Authorization: ***"),
        ("{'authorization': 'Basic abc=='}", "{'authorization': '***'}"),
        (
            "Endpoint=sb://h/;SharedAccessKeyName=app;SharedAccessKey=a+b/c=;EntityPath=q",
            "Endpoint=sb://h/;SharedAccessKeyName=app;SharedAccessKey=***",
        ),
        ("SharedAccessSignature sr=h&sig=a%2Fb&se=1", "SharedAccessSignature sr=h&sig=***&se=1"),
        ("unexpected token: '}'", "unexpected token: '}'"),
        ("password authentication failed for user x", "password authentication failed for user x"),
        ("http://h:80/metrics and a@b", "http://h:80/metrics and a@b"),
    ],
)
def test_named_secrets_are_hidden_and_other_words_are_not(text: str, shown: str) -> None:
    assert masked(text) == shown


@given(cut=st.integers(0, 80), url=st.sampled_from(WRONG), before=st.text(max_size=5))
def test_what_is_left_of_a_secret_that_was_cut_off_is_hidden(
    cut: int, url: str, before: str
) -> None:
    shown = masked(f"{before} {url}", cut)
    assert SECRET[:2] not in shown.replace(before, "")


def test_a_secret_that_is_cut_off_stays_out_of_a_jobs_error() -> None:
    for chars in (ERROR_TEXT_CHARS_MAX, ERROR_TEXT_CHARS_MAX * 3 // 4):
        before = "x" * (chars - 30)
        assert SECRET not in error_text(ValueError(f"{before} a://u:{SECRET * 20}@h"))
