"""The general rule, phrases and edits, over text of our own."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.zendnnify.rewrite import (
    Renamer,
    Uncovered,
    explain,
    is_generated,
    locate,
    rewrite,
    with_header,
)
from tools.zendnnify.rules import ruleset
from tools.zendnnify.rules.model import (
    Action,
    Edit,
    Phrase,
    RuleSet,
    Spelling,
    Where,
    ZendnnifyError,
)
from tools.zendnnify.rules.names.vocabulary import GLUED, SPELLINGS, WORDS

NAMES = Renamer(SPELLINGS, GLUED)

spellings = st.sampled_from(SPELLINGS)
# Letters that cannot form a vocabulary word in any combination.
small = st.text("abcfghjrstuvwxyz", min_size=1, max_size=6)
digits = st.text("0123456789", max_size=2)


def rules(*, phrases: tuple[Phrase, ...] = (), edits: tuple[Edit, ...] = ()) -> RuleSet:
    return RuleSet(SPELLINGS, GLUED, phrases, edits, operators=("mkldnn_linear", "to_mkldnn"))


def plain(text: str) -> str:
    return rewrite(text, "a.txt", rules(), "text").text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mkldnn", "zendnn"),
        ("MkldnnCPU", "ZendnnCPU"),
        ("AT_MKLDNN_ENABLED", "AT_ZENDNN_ENABLED"),
        ("oneDNN", "ZenDNN"),
        ("OneDNN", "ZenDNN"),
        ("DNNL_ARG_SRC_0", "ZENDNN_ARG_SRC_0"),
        ("kDnnl_matmul", "kZendnn_matmul"),
        ("GetDnnlPartitions", "GetZendnnPartitions"),
        ("dnnlToBinaryOp", "zendnnToBinaryOp"),
        ("kind2dnnl_kind", "kind2zendnn_kind"),
        ("BroadcastMKLDNNTensors", "BroadcastZENDNNTensors"),
        ("IDeepTensorWrapper", "ADeepTensorWrapper"),
        ("hasMKLDNN", "hasZENDNN"),
        ("test_dnnl_onednn", "test_zendnn_zendnn"),
        ("libdnnl", "libzendnn"),
        ("DNNLROOT", "ZENDNNROOT"),
    ],
)
def test_known_names(old: str, new: str) -> None:
    assert NAMES.identifier(old) == new


@pytest.mark.parametrize(
    "name", ["wideeper", "cudnnLRNForward", "mkldnnish", "MKLDNNCPU", "xdnnl", "mkLDNN", "OneDnn"]
)
def test_partial_words_and_unusual_spellings_are_not_renamed(name: str) -> None:
    assert NAMES.identifier(name) is None


@given(small, spellings, small, digits)
def test_a_word_between_underscores_is_renamed_and_nothing_else(
    a: str, spelling: Spelling, b: str, number: str
) -> None:
    for before in ("", f"{a}_", f"{a}{number}_", "__"):
        for after in ("", f"_{b}", f"_{b}{number}", "_"):
            name = before + spelling.source + after
            assert NAMES.identifier(name) == before + spelling.target + after


@given(small, spellings, small)
def test_a_word_in_camel_case_is_renamed_and_nothing_else(
    a: str, spelling: Spelling, b: str
) -> None:
    capital = spelling.source[0].isupper()
    before = a if capital else ""
    after = b.capitalize() + "x" + b.capitalize()
    name = before + spelling.source + after
    assert NAMES.identifier(name) == before + spelling.target + after


@given(small, st.sampled_from(WORDS), small)
def test_a_word_inside_of_a_longer_word_is_never_renamed(a: str, word: str, b: str) -> None:
    for name in (a + word, word + b, a + word + b, (a + word + b).upper()):
        assert NAMES.identifier(name) is None


@given(st.text("abcdefgklmnopqDNLMKIE_019", max_size=12))
def test_names_without_the_vocabulary_stay(name: str) -> None:
    if not any(word in name.lower() for word in WORDS):
        assert NAMES.text(name, "a.py") == name


def test_zendnn_before_an_l_does_not_count_as_vocabulary() -> None:
    assert NAMES.identifier("MKLDNNLayerNorm_dnnl") == "ZENDNNLayerNorm_zendnn"
    assert plain("ZENDNNLayerNorm zendnn_linear zendnnlib") == (
        "ZENDNNLayerNorm zendnn_linear zendnnlib"
    )


@given(st.lists(spellings, min_size=1, max_size=4))
def test_renaming_twice_is_renaming_once(words: list[Spelling]) -> None:
    for joint in ("_", "8"):
        once = NAMES.text(joint.join(word.source for word in words) + "Lower", "a.py")
        assert NAMES.text(once, "a.py") == once
        assert plain(once) == once


separators = st.text(" \n\t\"'(){};:,.+*&<>=#/\u00e9\u0130", min_size=1, max_size=3)


@given(st.lists(st.tuples(separators, st.one_of(small, spellings)), max_size=12))
def test_any_text_around_names_stays(
    pieces: list[tuple[str, str | Spelling]],
) -> None:
    old = new = ""
    for separator, piece in pieces:
        old += separator + (piece if isinstance(piece, str) else piece.source)
        new += separator + (piece if isinstance(piece, str) else piece.target)
    assert plain(old) == new


@given(st.lists(st.tuples(separators, spellings), max_size=8))
def test_the_source_can_be_restored_from_the_substitutions(
    pieces: list[tuple[str, Spelling]],
) -> None:
    source = "".join(separator + word.source for separator, word in pieces)
    result = rewrite(source, "a.txt", rules(), "text")
    back, done, shift = "", 0, 0
    for item in result.substitutions:
        start = item.start + shift
        back += result.text[done:start] + source[item.start : item.end]
        done = start + len(item.new)
        shift += len(item.new) - (item.end - item.start)
    assert back + result.text[done:] == source


def test_names_in_strings_comments_paths_and_flags_are_renamed() -> None:
    assert plain('"mkldnn::data_ptr" // in oneDNN') == '"zendnn::data_ptr" // in ZenDNN'
    assert plain("#include <oneapi/dnnl/dnnl.hpp>") == "#include <oneapi/zendnn/zendnn.hpp>"
    assert plain("-DDNNL_X=1 -ldnnl libdnnl.so") == "-DZENDNN_X=1 -lzendnn libzendnn.so"
    assert plain("non-DNNL, non-dnnl") == "non-ZENDNN, non-zendnn"


def test_line_ends_are_kept() -> None:
    assert plain("dnnl\r\nideep\r\n") == "zendnn\r\nadeep\r\n"


def test_an_uncovered_token_is_an_error_with_its_place() -> None:
    with pytest.raises(Uncovered, match=r"a\.txt:2:3: no rule covers 'mkLDNN'.*add a rule"):
        plain("ok\n  mkLDNN\n")


def test_the_number_of_uncovered_tokens_is_reported() -> None:
    with pytest.raises(Uncovered, match="and 2 more in this file"):
        plain("xdnnl ydnnl zdnnl")


# --- phrases ---------------------------------------------------------------------------------

KEEP = Phrase("keep", r"\bat::{operators}(?=\()", "theirs", where=Where.CODE)


def test_a_phrase_keeps_a_name_in_code_only() -> None:
    text = 'at::mkldnn_linear(x); // at::mkldnn_linear(\nf("at::mkldnn_linear(");'
    result = rewrite(text, "a.cpp", rules(phrases=(KEEP,)), "cpp")
    assert result.text == ('at::mkldnn_linear(x); // at::zendnn_linear(\nf("at::zendnn_linear(");')
    assert result.counts() == {"general": 2, "keep": 1}


@pytest.mark.parametrize(
    "text",
    ['R"x(a " at::mkldnn_linear( )x"', "/* at::mkldnn_linear(\n*/", '"\\" at::mkldnn_linear("'],
)
def test_raw_strings_block_comments_and_escapes_are_not_code(text: str) -> None:
    result = rewrite(text, "a.cpp", rules(phrases=(KEEP,)), "cpp")
    assert result.counts() == {"general": 1}


@pytest.mark.parametrize("text", ['"""at::mkldnn_linear("""', "# at::mkldnn_linear("])
def test_python_strings_and_comments_are_not_code(text: str) -> None:
    result = rewrite(text, "a.py", rules(phrases=(KEEP,)), "python")
    assert result.counts() == {"general": 1}


def test_groups_of_a_replacement_are_renamed() -> None:
    phrase = Phrase("symbol", r"\bprim::(MKLDNN\w+)", "no symbol", 'Symbol::prim("\\1")')
    result = rewrite("k == prim::MKLDNNClamp", "a.cpp", rules(phrases=(phrase,)), "cpp")
    assert result.text == 'k == Symbol::prim("ZENDNNClamp")'


def test_the_first_phrase_to_claim_a_place_wins() -> None:
    first = Phrase("first", r"a\.mkldnn", "one", "a.one")
    second = Phrase("second", r"mkldnn", "two", "two")
    result = rewrite("a.mkldnn b.mkldnn", "a.cpp", rules(phrases=(first, second)), "cpp")
    assert result.text == "a.one b.two"


def test_a_phrase_holds_only_for_its_files() -> None:
    phrase = Phrase("device", r"mkldnn", "why", "x", files=("test/*",))
    assert rewrite("mkldnn", "test/a", rules(phrases=(phrase,)), "text").text == "x"
    assert rewrite("mkldnn", "src/a", rules(phrases=(phrase,)), "text").text == "zendnn"


def test_a_refused_name_is_an_error_with_the_reason() -> None:
    phrase = Phrase("no", r"\bkMkldnn\b", "torch has no such layout for us", refuse=True)
    with pytest.raises(Uncovered, match=r"a\.cpp:1:5: 'kMkldnn' has no rule: torch has no such"):
        rewrite("x = kMkldnn;", "a.cpp", rules(phrases=(phrase,)), "cpp")


def test_web_addresses_and_cudnn_keep_their_names() -> None:
    text = "https://example.org/oneDNN/dnnl.html, cudnnLRNForward, uxlfoundation/oneDNN, dnnl"
    result = rewrite(text, "a.md", ruleset("onednn", "3.7"), "text")
    assert result.text == text.removesuffix("dnnl") + "zendnn"


def test_the_librarys_namespace_is_distinguished_from_pytorchs() -> None:
    text = "dnnl::memory m; mkldnn::prepack(); a::dnnl::b; f(std::pair<int, dnnl::tag>{});"
    pytorch = ruleset("pytorch", "2.6", ("mkldnn_linear",))
    assert rewrite(text, "aten/a.cpp", pytorch, "cpp").text == (
        "::zendnn::memory m; zendnn::prepack(); a::zendnn::b; f(std::pair<int, ::zendnn::tag>{});"
    )


def test_helpers_are_not_exported() -> None:
    pytorch = ruleset("pytorch", "2.6", ("mkldnn_linear",))
    text = "TORCH_API int set_verbose(int level); struct TORCH_API A; // dnnl TORCH_API x"
    assert rewrite(text, "aten/a.h", pytorch, "cpp").text == (
        "int set_verbose(int level); struct A; // zendnn TORCH_API x"
    )


def test_torch_names_that_zendnn_lacks_are_refused() -> None:
    pytorch = ruleset("pytorch", "2.6", ("mkldnn_linear",))
    for name in (
        "at::kMkldnn",
        "Layout::Mkldnn",
        "at::hasMKLDNN()",
        "prim::BroadcastMKLDNNTensors",
    ):
        with pytest.raises(Uncovered, match="a name of the installed torch"):
            rewrite(f"x({name});", "torch/csrc/a.cpp", pytorch, "cpp")
    with pytest.raises(Uncovered, match=r"torch\._C"):
        rewrite("torch._C.is_mkldnn_on()", "torch/a.py", pytorch, "python")


# --- edits -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (Action.BEFORE, "int a;\nNEW mkldnn\nint zendnn_b;\nint c;\n"),
        (Action.AFTER, "int a;\nint zendnn_b;\nNEW mkldnn\nint c;\n"),
        (Action.REPLACE, "int a;\nNEW mkldnn\nint c;\n"),
    ],
)
def test_an_edit_inserts_its_text_verbatim(action: Action, expected: str) -> None:
    edit = Edit("e", "a.cpp", "int mkldnn_b;\n", action, "NEW mkldnn\n", "why")
    text = "int a;\nint mkldnn_b;\nint c;\n"
    assert rewrite(text, "a.cpp", rules(edits=(edit,)), "cpp").text == expected
    assert rewrite(text, "b.cpp", rules(edits=(edit,)), "cpp").text == plain(text)


@pytest.mark.parametrize(("text", "count"), [("int b = 2;\n", 0), ("int b = 1;\n" * 2, 2)])
def test_an_anchor_that_does_not_occur_exactly_once_is_an_error(text: str, count: int) -> None:
    edit = Edit("value", "a.cpp", "int b = 1;\n", Action.REPLACE, "", "why")
    with pytest.raises(ZendnnifyError) as error:
        rewrite("int a;\n" + text, "a.cpp", rules(edits=(edit,)), "cpp")
    message = str(error.value)
    assert re.search(f"a.cpp: the anchor of rule 'value' occurs {count} times", message)
    assert "'int b = 1;\\n'" in message
    assert "the nearest text is at line 2: 'int b = " in message


def edit_of(anchor: str, action: Action, text: str) -> Edit:
    return Edit(f"{action.value} {anchor}", "a.cpp", anchor, action, text, "why")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (edit_of("a b", Action.REPLACE, "x"), edit_of("b c", Action.REPLACE, "y")),
        (edit_of("a b c", Action.REPLACE, "x"), edit_of("c", Action.BEFORE, "y")),
    ],
    ids=["two pieces", "an insertion"],
)
def test_edits_of_one_piece_of_text_are_an_error(one: Edit, other: Edit) -> None:
    for edits in ((one, other), (other, one)):
        with pytest.raises(ZendnnifyError, match=r"a\.cpp:1:\d: the anchor of rule .* overlaps"):
            rewrite("a b c", "a.cpp", rules(edits=edits), "cpp")


def test_an_insertion_goes_before_what_is_replaced_there() -> None:
    edits = (edit_of("b", Action.REPLACE, "x"), edit_of("b", Action.BEFORE, "y "))
    for ordered in (edits, edits[::-1]):
        assert rewrite("a b c", "a.cpp", rules(edits=ordered), "cpp").text == "a y x c"


def test_the_rest_of_an_identifier_that_is_partly_claimed_is_uncovered() -> None:
    phrase = Phrase("p", "mkldnn_a", "why", replacement="b")
    with pytest.raises(Uncovered, match=r"a\.cpp:1:1: no rule covers 'mkldnn_a_dnnl'"):
        rewrite("mkldnn_a_dnnl", "a.cpp", rules(phrases=(phrase,)), "cpp")
    assert rewrite("mkldnn_a_x", "a.cpp", rules(phrases=(phrase,)), "cpp").text == "b_x"


# --- other results -----------------------------------------------------------------------------


def test_merged_names_are_reported() -> None:
    result = rewrite("#define DNNL_X ONEDNN_X", "a.h", rules(), "cpp")
    assert result.text == "#define ZENDNN_X ZENDNN_X"
    assert result.merged == ("ZENDNN_X",)


def test_explain_shows_place_change_and_rule() -> None:
    text = "a\n b dnnl; at::mkldnn_linear(\n"
    result = rewrite(text, "a.cpp", rules(phrases=(KEEP,)), "cpp")
    assert list(explain(text, "a.cpp", result)) == [
        "2:4: 'dnnl' -> 'zendnn'  [general]",
        "2:10: 'at::mkldnn_linear' kept  [keep]",
    ]


@given(st.text("ab\n", max_size=20), st.integers(0, 20))
def test_locations_count_from_one(text: str, offset: int) -> None:
    offset = min(offset, len(text))
    place = locate(text, offset, "f")
    lines = text.split("\n")
    assert sum(len(line) + 1 for line in lines[: place.line - 1]) + place.column - 1 == offset


def test_a_header_names_the_source_and_is_recognised() -> None:
    for language, first in (("cpp", "// Generated"), ("python", "# Generated")):
        text = with_header("x\n", "a/b.c", language)
        assert text.startswith(first)
        assert "from a/b.c; do not edit.\nx\n" in text
        assert is_generated(text)
    assert with_header("x", "a", "text") == "x"
    assert not is_generated("x\n")


def test_a_header_leaves_script_lines_and_byte_order_marks_in_front() -> None:
    script = with_header("#!/usr/bin/env python\nx\n", "a.py", "python")
    assert script.startswith("#!/usr/bin/env python\n# Generated")
    assert is_generated(script)
    assert with_header("\ufeffint x;", "a.cpp", "cpp").startswith("\ufeff// Generated")


def test_code_after_a_comment_and_a_string_is_code() -> None:
    text = 'at::mkldnn_linear(x); // a\nf("b");at::mkldnn_linear(y);'
    assert rewrite(text, "a.cpp", rules(phrases=(KEEP,)), "cpp").text == text


def test_an_edit_of_a_file_without_vocabulary_is_made() -> None:
    edit = Edit("e", "a.cpp", "int x;", Action.AFTER, " int y;", "why")
    assert rewrite("int x;", "a.cpp", rules(edits=(edit,)), "cpp").text == "int x; int y;"


def test_no_text_is_lost_after_a_byte_order_mark() -> None:
    assert with_header("\ufeffint x;", "a.cpp", "cpp").endswith("\nint x;")


@pytest.mark.parametrize("name", ["ABDNNL", "XDNNL_A", "AMKLDNN", "ldnnl"])
def test_partial_words_are_uncovered(name: str) -> None:
    with pytest.raises(Uncovered):
        plain(name)
