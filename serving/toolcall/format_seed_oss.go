package toolcall

// Seed-OSS.
func init() {
	call := callInTags{stop: "</seed:tool_call>"}
	alone := call
	alone.known = true
	register(Format{
		Name: "seed-oss", Doc: `<seed:tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></seed:tool_call>, several`,
		detect:  has([]string{"<seed:tool_call>", "<function="}),
		openers: []opener{{mark: "<seed:tool_call>", call: call}, {mark: functionTag, call: alone, within: true}}, closer: call.stop,
		forced: layout{open: "<seed:tool_call>\n", close: "\n</seed:tool_call>", between: "\n", call: call},
	})
}
