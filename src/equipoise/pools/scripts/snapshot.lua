-- Reads everything at one moment. Changes nothing. Keys of a wrong type are named, not read.
-- the number of extra tiers, their names, then extra pods: what a scan found beyond config and sets
local function type_of(key)
  local answer = redis.call('TYPE', key)
  return type(answer) == 'table' and answer.ok or answer
end

local pools, pods, seen, wrong = {}, {}, {}, {}
local function note(pod)
  if not seen[pod] then
    seen[pod] = true
    pods[#pods + 1] = pod
  end
end

local names = {}
for _, tier in ipairs(tiers) do names[#names + 1] = tier.name end
local extra = tonumber(ARGV[3])
for at = 4, 3 + extra do
  if not by_name[ARGV[at]] then names[#names + 1] = ARGV[at] end
end
for at = 4 + extra, #ARGV do note(ARGV[at]) end

for _, name in ipairs(names) do
  local pool = prefix .. ':pool:' .. name
  local kind, free = type_of(pool .. ':assigned'), type_of(pool .. ':available')
  local assigned, available = {}, {}
  if kind == 'set' then assigned = redis.call('SMEMBERS', pool .. ':assigned') end
  if free == 'set' then
    for _, pod in ipairs(redis.call('SMEMBERS', pool .. ':available')) do
      available[#available + 1] = pod
      available[#available + 1] = '0'
    end
  elseif free == 'zset' then
    available = redis.call('ZRANGE', pool .. ':available', 0, -1, 'WITHSCORES')
  end
  for _, pod in ipairs(assigned) do note(pod) end
  for at = 1, #available, 2 do note(available[at]) end
  pools[#pools + 1] = {name, kind, free, assigned, available}
end

local function read(command, kind, key, ...)
  local found = type_of(key)
  if found == kind then return redis.call(command, key, ...) end
  if found ~= 'none' then
    wrong[#wrong + 1] = key
    wrong[#wrong + 1] = found
  end
  return nil
end

local metadata = read('HGETALL', 'hash', METADATA) or {}
for at = 1, #metadata, 2 do note(metadata[at]) end
local pending = read('HGETALL', 'hash', PENDING) or {}
read('HLEN', 'hash', SUSPECTS)
local config = read('GET', 'string', KEYS[1])
local epoch = read('GET', 'string', EPOCH)
local others = wrong

local rows = {}
for _, pod in ipairs(pods) do
  wrong = {}
  local row = {pod}
  row[2] = read('GET', 'string', tier_key(pod)) or false
  row[3] = read('GET', 'string', draining_key(pod)) and 1 or redis.call('EXISTS', draining_key(pod))
  row[4] = read('GET', 'string', lease_key(pod)) or (redis.call('EXISTS', lease_key(pod)) == 1 and '' or false)
  local alive = {}
  for _, call in ipairs(read('SMEMBERS', 'set', calls_key(pod)) or {}) do
    if redis.call('EXISTS', call_key(call)) == 1 then alive[#alive + 1] = call end
  end
  row[5] = alive
  row[6] = read('HGET', 'hash', pod_key(pod), 'uid') or ''
  row[8] = read('HGET', 'hash', pod_key(pod), 'suspended') or ''
  row[7] = wrong
  rows[#rows + 1] = row
end
return {config or false, epoch or false, pools, rows, metadata, pending, others}
