package toolcall

// GLM-4.5, 4.6 and 4.7; the last leaves the line breaks out.
func init() {
	call := callInPairs{stop: "</tool_call>"}
	register(Format{
		Name: "glm", Doc: `<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>…</tool_call>, several`,
		detect:  has([]string{"<tool_call>", keyTag, valueTag}),
		openers: []opener{{mark: "<tool_call>", call: call}}, closer: call.stop,
		inner:  []string{keyTag, keyEnd, valueTag, valueEnd},
		forced: layout{open: "<tool_call>", close: "</tool_call>", between: "\n", call: call},
	})
}
