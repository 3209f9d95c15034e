"""What the public verbs take, as the primitives take it."""

import uuid

from jobboard import arguments


def test_new_uuids() -> None:
    texts = [arguments.new_uuid() for _ in range(2000)]
    made = [uuid.UUID(text) for text in texts]
    assert [str(each) for each in made] == texts
    assert {(each.version, each.variant) for each in made} == {(4, uuid.RFC_4122)}
    assert len(set(texts)) == 2000
    # Every bit that may be anything is both 0 and 1 somewhere.
    ones, zeros = 0, 0
    for each in made:
        ones, zeros = ones | each.int, zeros | ~each.int
    free = ~(0xF << 76 | 0x3 << 62) & (1 << 128) - 1
    assert ones & free == zeros & free == free
