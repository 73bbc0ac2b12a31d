-- The new metadata of a pod, and whether what is there is malformed; nil leaves it as it is. Only the value of
-- its tier changes, every other byte of the JSON stays. What it needs is defined inside: most calls need none.
local function metadata_with(pod, tier)
  local text = redis.call('HGET', METADATA, pod)
  if not text then return nil, false end
  if not pcall(cjson.decode, text) or not string.find(text, '^%s*{') then return nil, true end
  -- Where the string that begins at `at` ends.
  local function string_end(at)
    local from = at + 1
    while true do
      local found = string.find(text, '["\\]', from)
      if string.sub(text, found, found) == '"' then return found end
      from = found + 2
    end
  end
  -- Where the value that begins at `at` ends, whatever it is.
  local function value_end(at)
    local first = string.sub(text, at, at)
    if first == '"' then return string_end(at) end
    if first ~= '{' and first ~= '[' then
      local _, last = string.find(text, '^[^,%]}%s]+', at)
      return last
    end
    local depth, from = 0, at
    while true do
      local found = string.find(text, '["{}%[%]]', from)
      local char = string.sub(text, found, found)
      if char == '"' then
        found = string_end(found)
      elseif char == '{' or char == '[' then
        depth = depth + 1
      else
        depth = depth - 1
        if depth == 0 then return found end
      end
      from = found + 1
    end
  end
  local function replaced()
    local quoted = cjson.encode(tier)
    local parts, kept, from = {}, 1, string.find(text, '{', 1, true) + 1
    while true do
      local key = string.find(text, '["}]', from)
      if string.sub(text, key, key) == '}' then
        if #parts > 0 then return table.concat(parts) .. string.sub(text, kept) end
        local comma = string.find(text, '^%s*{%s*}') and '' or ','
        return string.sub(text, 1, key - 1) .. comma .. '"tier":' .. quoted .. string.sub(text, key)
      end
      local key_end = string_end(key)
      local value = string.find(text, '%S', string.find(text, ':', key_end, true) + 1)
      local last = value_end(value)
      if string.sub(text, key, key_end) == '"tier"' then
        parts[#parts + 1] = string.sub(text, kept, value - 1) .. quoted
        kept = last + 1
      end
      from = last + 1
    end
  end
  local is_done, changed = pcall(replaced)
  if not is_done then return nil, true end
  return changed, false
end
