package toolcall

// Granite 3; 3.1 also writes the tag <tool_call>.
func init() {
	register(Format{
		Name: "granite", Doc: `<|tool_call|>[{"name": …, "arguments": {…}}, …]`,
		detect:  has([]string{"<|start_of_role|>", "<|tool_call|>"}),
		openers: []string{"<|tool_call|>", "<tool_call>"},
		forced:  layout{prefix: "<|tool_call|>[", between: ", ", suffix: "]", arguments: "arguments"},
	})
}
