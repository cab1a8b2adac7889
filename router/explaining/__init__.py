"""Why a request goes where it goes: one decision with everybody's price, and what that rests on."""
