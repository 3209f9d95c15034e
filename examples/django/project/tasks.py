from django.tasks import task


@task
def count_words(text: str) -> dict[str, int]:
    words = text.lower().split()
    if not words:
        raise ValueError("there is no word in it")
    return {word: words.count(word) for word in words}
