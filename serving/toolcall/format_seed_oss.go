package toolcall

// Seed-OSS.
func init() {
	register(Format{
		Name: "seed-oss", Doc: `<seed:tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></seed:tool_call>, several`,
		detect:  has([]string{"<seed:tool_call>", "<function="}),
		openers: []string{"<seed:tool_call>"}, closer: "</seed:tool_call>", xml: true,
		forced: layout{open: "<seed:tool_call>\n", close: "\n</seed:tool_call>", between: "\n"},
	})
}
