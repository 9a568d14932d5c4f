package toolcall

// Granite 3; 3.1 also writes the tag <tool_call>.
func init() {
	call := callInJSON{key: "arguments"}
	register(Format{
		Name: "granite", Doc: `<|tool_call|>[{"name": …, "arguments": {…}}, …]`,
		detect:  has([]string{"<|start_of_role|>", "<|tool_call|>"}),
		openers: []opener{{mark: "<|tool_call|>", call: call}, {mark: "<tool_call>", call: call}},
		forced:  layout{prefix: "<|tool_call|>[", between: ", ", suffix: "]", call: call},
	})
}
