-- What every script begins with. KEYS[1] is PREFIX:tier:config; all other keys are derived from its prefix,
-- so that with a hash tag in the prefix they share its slot. ARGV[1] is the config's text as the caller
-- knows it, ARGV[2] its tiers, read: "NAME TYPE TARGET MAX IN_CHAIN;" for each, the chain first.
-- With "dry" at the end of ARGV[2], a script answers what it would do, and does not.
-- A script is sent with only those of these functions that it uses, and those that name a key are written
-- out where they are used, since each costs time at every call.
-- Every script reads and checks all before its first write: an error half-way would keep what was written.
-- A key of a wrong type therefore fails at its read, with WRONGTYPE, while nothing is changed.
-- A writer ends with a write that changes nothing (__init__.py): a replica, which would answer from what it knows
-- as long as nothing is written, refuses there.

local prefix = string.sub(KEYS[1], 1, -(#':tier:config' + 1))

local is_dry = string.sub(ARGV[2], -3) == 'dry'

local tiers, by_name = {}, {}
for name, kind, target, most, in_chain in string.gmatch(ARGV[2], '(%S+) (%S+) (%d+) (%d+) (%d);') do
  local pool = prefix .. ':pool:' .. name
  local tier = {
    name = name, shared = kind == 'shared', target = tonumber(target), most = tonumber(most),
    in_chain = in_chain == '1', assigned = pool .. ':assigned', available = pool .. ':available',
  }
  tiers[#tiers + 1] = tier
  by_name[name] = tier
end

local EPOCH = prefix .. ':epoch'

local METADATA = prefix .. ':pod:metadata'

local PENDING = prefix .. ':pending'

local SUSPECTS = prefix .. ':suspects'

local function tier_key(pod) return prefix .. ':pod:tier:' .. pod end

local function draining_key(pod) return prefix .. ':pod:draining:' .. pod end

local function lease_key(pod) return prefix .. ':lease:' .. pod end

local function pod_key(pod) return prefix .. ':pod:' .. pod end

local function calls_key(pod) return prefix .. ':pod:' .. pod .. ':calls' end

-- Keys of a pod of such a name would be those of others: all pods' metadata, or what a pod named `calls` has.
local function is_misnamed(pod)
  return pod == 'metadata' or pod == 'tier' or pod == 'draining' or string.find(pod, ':', 1, true) ~= nil
end

local MISNAMED = {'Unsound', '', 'its name is a part of other keys, so it gets no calls'}

local function call_key(call) return prefix .. ':call:' .. call end

local function config_changed() return (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] end

-- The newest leader's epoch; -1 when no leader has written yet. A Lease counts to 2^31 - 1: whatever else
-- stands there is a foreign hand's, and is nil. It would fence off every leader for ever, or none.
local function stored_epoch()
  local text = redis.call('GET', EPOCH)
  if not text then return -1 end
  local count = string.match(text, '^%d+$') and #text <= 10 and tonumber(text)
  return count and count <= 2147483647 and count or nil
end

-- Why a caller of this epoch may not write. An empty one is a caller without a leader; it is fenced by nobody
-- and fences nobody.
local function fenced(epoch)
  local stored = stored_epoch()
  if epoch == '' then return nil end
  if not stored then return {'EpochUnreadable'} end
  return tonumber(epoch) < stored and {'Fenced'} or nil
end

local function raise_epoch(epoch)
  if epoch ~= '' and tonumber(epoch) > stored_epoch() then redis.call('SET', EPOCH, epoch) end
end

local function recorded_uid(pod) return redis.call('HGET', pod_key(pod), 'uid') or '' end

local function is_other_uid(pod, uid)
  local known = recorded_uid(pod)
  return uid ~= '' and known ~= '' and known ~= uid
end

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- A call is alive where its record says so. A record can run out, and the same call come again elsewhere.
local function is_alive(call, pod) return redis.call('HGET', call_key(call), 'pod_name') == pod end

-- The calls of ours that are alive there, and those that are not any more.
local function calls_of(pod)
  local alive, dead = {}, {}
  for _, call in ipairs(redis.call('SMEMBERS', calls_key(pod))) do
    local list = is_alive(call, pod) and alive or dead
    list[#list + 1] = call
  end
  return alive, dead
end

-- Whether a call of ours is alive there.
local function has_calls(pod)
  for _, call in ipairs(redis.call('SMEMBERS', calls_key(pod))) do
    if is_alive(call, pod) then return true end
  end
  return false
end

-- The tiers whose `assigned` has the pod.
local function assigned_to(pod)
  local found = {}
  for _, tier in ipairs(tiers) do
    if redis.call('SISMEMBER', tier.assigned, pod) == 1 then found[#found + 1] = tier end
  end
  return found
end

-- How many calls a free pod has; nil when it is not free. An exclusive one has none.
local function free_calls(tier, pod)
  if tier.shared then return tonumber(redis.call('ZSCORE', tier.available, pod) or '') end
  return redis.call('SISMEMBER', tier.available, pod) == 1 and 0 or nil
end

local function publish(tier, pod, calls)
  if tier.shared then
    redis.call('ZADD', tier.available, calls, pod)
  else
    redis.call('SADD', tier.available, pod)
  end
end

local function unpublish(tier, pod)
  redis.call(tier.shared and 'ZREM' or 'SREM', tier.available, pod)
end

local function is_merchants(pod)
  local tier = redis.call('GET', tier_key(pod))
  return tier and string.sub(tier, 1, 9) == 'merchant:'
end
