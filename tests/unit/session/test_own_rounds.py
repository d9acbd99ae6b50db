"""When a leader whose process returned must start a round."""

import pytest

from coopgroup.leader import read_members
from coopgroup.model import EMPTY, ResourceSet
from coopgroup.model.group_api import JoinedMember
from coopgroup.policies import SimplePolicy, Warmup
from coopgroup.protocol import Subscription, UserData, encode_subscription, encode_user_data
from coopgroup.protocol.assignment_trailer import resources_digest
from coopgroup.session import LookOver

FOUND = ResourceSet({"orders": [0, 1]})


@pytest.mark.parametrize(
    ("digest", "has_trailers", "needs"),
    [
        (resources_digest(FOUND), True, False),
        (resources_digest(EMPTY), True, True),
        (None, True, True),
        (None, False, False),
    ],
    ids=["all is as it was", "partitions appeared", "not known", "never known to other clients"],
)
def test_topics_that_changed_meanwhile_need_a_round(
    digest: int | None, *, has_trailers: bool, needs: bool
) -> None:
    look = LookOver(members=(), shared_digest=digest, has_trailers=has_trailers)
    assert look.needs_round(FOUND, read_members(()), SimplePolicy()) is needs


@pytest.mark.parametrize("policy", [SimplePolicy(), SimplePolicy(warmup=Warmup())])
@pytest.mark.parametrize("warm", [None, EMPTY])
def test_warm_ups_of_a_leader_that_returned_need_a_round(
    policy: SimplePolicy, warm: ResourceSet | None
) -> None:
    """Only its earlier process knew when they time out."""
    look = LookOver(members=(), shared_digest=resources_digest(FOUND), has_trailers=True)
    data = encode_user_data(UserData(warm=warm))
    metadata = encode_subscription(Subscription(topics=("orders",), user_data=data))
    joined_ = JoinedMember(member_id="m", group_instance_id=None, metadata=metadata)
    needs = policy.warmup is not None and warm is not None
    assert look.needs_round(FOUND, read_members((joined_,)), policy) is needs
