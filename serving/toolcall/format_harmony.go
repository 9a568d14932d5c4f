package toolcall

// gpt-oss. Its templates take one call a message.
func init() {
	register(Format{
		Name: "harmony", Doc: `<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>, thoughts in the channel analysis`,
		detect:   has([]string{channelMark, messageMark, startMark}),
		channels: &channels{},
		forced:   layout{call: channels{}, single: true},
	})
}
