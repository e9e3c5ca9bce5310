"""A panel of HTML at the level of its traits and messages; the page itself is tested in a browser."""

from detlab.widgets.html_panel import HtmlPanel


def test_a_clicked_button_gives_its_data_to_the_callbacks():
    panel, seen = HtmlPanel("<p>hello</p>"), []
    panel.on_act(seen.append)
    panel._handle_custom_msg({"type": "act", "data": {"rank": "3"}}, [])
    assert seen == [{"rank": "3"}]


def test_a_message_of_another_form_is_no_click():
    panel, seen = HtmlPanel(), []
    panel.on_act(seen.append)
    for message in ({"type": "hover"}, {"type": "act", "data": "rank"}, "act", None):
        panel._handle_custom_msg(message, [])
    assert seen == []
