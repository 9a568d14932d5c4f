package toolcall

// Qwen3-Coder.
func init() {
	register(Format{
		Name: "qwen3-coder", Doc: `<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>, several`,
		detect:  has([]string{"<tool_call>", "<function="}, "<seed:tool_call>"),
		openers: []string{"<tool_call>"}, closer: "</tool_call>", xml: true, lines: true,
		forced: layout{open: "<tool_call>\n", close: "\n</tool_call>", between: "\n"},
	})
}
