package toolcall

// Qwen3-Coder, Qwen3-Next's Coder and Qwen3.5. They leave the first tag out at times, and end tags of parameters.
func init() {
	call := callInTags{lines: true, stop: "</tool_call>"}
	alone := call
	alone.known = true
	register(Format{
		Name: "qwen3-coder", Doc: `<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>, several`,
		detect:  has([]string{"<tool_call>", "<function="}, "<seed:tool_call>"),
		openers: []opener{{mark: "<tool_call>", call: call}, {mark: functionTag, call: alone, within: true}}, closer: call.stop,
		forced: layout{open: "<tool_call>\n", close: "\n</tool_call>", between: "\n", call: call},
	})
}
