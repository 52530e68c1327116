local function ints(n)
  local d = {}
  for i = 0, n - 1 do d[i * 7919 % 65536] = i end
  local hits = 0
  for i = 0, n - 1 do if d[i] ~= nil then hits = hits + d[i] end end
  return hits
end
local function texts(n)
  local words = {}
  for i = 0, 999 do words[i] = "word" .. i end
  local counts = {}
  for i = 0, n - 1 do
    local w = words[i * 31 % 1000]
    counts[w] = (counts[w] or 0) + 1
  end
  local total = 0
  for w, c in pairs(counts) do total = total + c * #w end
  return total
end
local total = 0
for i = 1, 5 do total = total + ints(200000) + texts(300000) end
print(total)
