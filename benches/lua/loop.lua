local s, i = 0.0, 0
while i < 20000000 do
  s = s + i * 0.5
  if s > 1e12 then s = s - 1e12 end
  i = i + 1
end
print(s)
