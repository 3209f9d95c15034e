from django.http import Http404, HttpRequest, JsonResponse
from django.tasks.exceptions import TaskResultDoesNotExist
from django.urls import path
from django.views.decorators.http import require_POST

from project.tasks import count_words


@require_POST
def post(request: HttpRequest) -> JsonResponse:
    result = count_words.enqueue(request.body.decode())
    return JsonResponse({"task": result.id}, status=202)


def show(request: HttpRequest, task: str) -> JsonResponse:
    try:
        result = count_words.get_result(task)
    except TaskResultDoesNotExist:
        raise Http404 from None
    words = result.return_value if result.status == "SUCCESSFUL" else None
    return JsonResponse({"status": result.status, "words": words})


urlpatterns = [path("texts", post), path("texts/<task>", show)]
