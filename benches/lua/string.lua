local function work(n)
  local parts = {}
  for i = 0, n - 1 do parts[#parts + 1] = "item" .. i end
  local text = table.concat(parts, ",")
  local count = 0
  for part in string.gmatch(text, "[^,]+") do
    if string.sub(part, 1, 5) == "item1" then count = count + 1 end
    if string.sub(part, 5) == "77" then count = count + 100 end
    count = count + #string.upper(part)
  end
  local swapped = string.gsub(text, "item", "thing")
  return count + #swapped + string.find(swapped, "thing" .. (n - 1), 1, true) - 1
end
local total = 0
for i = 0, 29 do total = total + work(10000) end
print(total)
