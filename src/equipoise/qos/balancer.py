"""Quality of service, as the rest of the program knows it."""

from equipoise.engine.balancer import Balancer
from equipoise.qos.decide import decide
from equipoise.qos.objects import QOS_KINDS
from equipoise.qos.record import redecide

BALANCER = Balancer("qos", kinds=QOS_KINDS, decide=decide, redecide=redecide)
