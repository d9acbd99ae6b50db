"""Advice: the policy, time-outs and rations that cost a group least, and why."""
