"""The pages, one for each balancer and one for all: records in, a `Page` out. Pure, and never surprised.

A record may be of any version, without its inputs, or made up by somebody: what is not there, or is not what
it should be, leaves its figure or picture out.
"""
