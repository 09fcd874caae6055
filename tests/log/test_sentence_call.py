"""A failure whose calls nobody kept is judged by the part that says its sentence, as with them."""

from tests.rules.test_ends import diagnosed

TILES = (
    "ValueError: The output_size of gate's and up's weight = 96 is not divisible by weight quantization block_n = 64."
)


def test_a_quoted_last_line_gets_the_answer_of_its_part() -> None:
    told = diagnosed(TILES).findings[0]
    assert (told.code, told.title) == ("VD527", "Quantized matrices do not divide into the kernel's tiles")
    assert next((change.name, change.direction) for change in told.changes) == ("tensor-parallel-size", "lower")


def test_a_call_that_is_there_stands() -> None:
    """Another program's code that raises in the same words has its own calls."""
    calls = 'Traceback (most recent call last):\n  File "/srv/own.py", line 3, in check\n    raise ValueError(told)\n'
    quoted = f"{calls}{TILES}"
    assert diagnosed(quoted).findings[0].title != "Quantized matrices do not divide into the kernel's tiles"


def test_no_line_is_invented() -> None:
    """The call that is found has no line of its own: each release has it elsewhere."""
    text = "AssertionError: enable_return_routed_experts requires at least one kv cache group"
    assert ":0)" not in str(diagnosed(text))


def test_names_are_those_of_the_last_release_that_says_so() -> None:
    """No line tells the release. Whoever says this has no option for the backend yet, only the variable."""
    text = "ValueError: XFormers does not support attention logits soft capping."
    change = diagnosed(text).findings[0].changes[0]
    assert (change.name, change.variable) == ("attention-backend", "VLLM_ATTENTION_BACKEND")


def test_a_short_last_line_gets_the_answer_of_its_part() -> None:
    told = diagnosed("ValueError: Unsupported tokenizer type: <class 'acme.Tok'>").findings[0]
    assert (told.code, told.title) == ("VD527", "XGrammar cannot read the vocabulary of this tokenizer")


def test_an_exception_that_is_not_called_an_error_is_told_by_its_words() -> None:
    quoted = "TokenizerException: Unrecognized tokenizer filename: tokenizer.model.v99"
    told = diagnosed(quoted).findings[0]
    assert (told.code, told.layer) == ("VD527", "tokenizer")
    assert not diagnosed("TokenizerNote: Unrecognized tokenizer filename: tokenizer.model.v99").findings
