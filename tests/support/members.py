"""Members of the library's own: conductors, asyncio, the command and bridges use them, and no page documents them."""

OF_BOARDS = frozenset(
    {
        *("borrowed", "end_claim", "end_claims", "keep_note", "give_back", "location", "look", "options", "post_due"),
        *("opened_record", "refresh", "result_of", "scheme", "sealed_note", "wanted"),
    }
)

OF_JOBS = frozenset(
    {
        *("confirm", "give_up", "is_marked_lost", "is_marked_or_lapsed", "mark_ended", "refuse"),
        *("content", "looks", "not_done", "opened", "record", "show_claimed"),
    }
)
"""Of claims, too."""
